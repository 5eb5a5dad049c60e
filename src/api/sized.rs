//! Structs that begin with their size, so that they may grow: a program that was compiled with
//! another header passes more or fewer bytes than we know.

use super::result::{GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_NULL_ARGUMENT, Outcome, fail};

/// A struct of the C API that begins with `size`.
///
/// # Safety
/// `repr(C)`, a `usize` first, and every pattern of bytes is a value.
pub(super) unsafe trait Tagged: Copy + Default {
    /// What messages call it.
    const NAME: &'static str;
    /// Up to the end of the last field that its first release had.
    const SMALLEST: usize;
}

/// No struct will ever be larger: what claims to be was never given its size.
const LARGEST: usize = 1 << 10;

/// How many bytes of the caller's struct we know.
///
/// # Safety
/// `given` must be NULL or point to a size and as many bytes as that says.
unsafe fn known<T: Tagged>(given: *const T) -> Outcome<usize> {
    if given.is_null() {
        return fail(GPUGTIFF_NULL_ARGUMENT, format!("the {} is NULL", T::NAME));
    }
    // SAFETY: the caller's promise; it need not be aligned for us.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if size < T::SMALLEST || size > LARGEST {
        let text = format!(
            "{}.size is {size}: expected sizeof({}), which is {} here",
            T::NAME,
            T::NAME,
            size_of::<T>()
        );
        return fail(GPUGTIFF_BAD_ARGUMENT, text);
    }
    for i in size_of::<T>()..size {
        // SAFETY: inside the struct, by its own account.
        if unsafe { given.cast::<u8>().add(i).read() } != 0 {
            let text = format!(
                "{} has fields that this library does not know, and byte {i} of it is set",
                T::NAME
            );
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        }
    }
    Ok(size.min(size_of::<T>()))
}

/// The caller's struct; fields that it does not have are as in `default`.
///
/// # Safety
/// As for [`known`].
pub(super) unsafe fn take<T: Tagged>(given: *const T) -> Outcome<T> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { known(given) }?;
    let mut value = T::default();
    // SAFETY: `bytes` of both are there, and any bytes are a T.
    unsafe {
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut value).cast(), bytes);
    }
    Ok(value)
}

/// The same where NULL stands for the default.
///
/// # Safety
/// As for [`known`].
pub(super) unsafe fn take_or_default<T: Tagged>(given: *const T) -> Outcome<T> {
    match given.is_null() {
        true => Ok(T::default()),
        // SAFETY: the caller's promise.
        false => unsafe { take(given) },
    }
}

/// A struct of the caller's that is to be filled in, checked before the work begins.
pub(super) struct Out<T> {
    place: *mut T,
    bytes: usize,
}

impl<T: Tagged> Out<T> {
    /// # Safety
    /// As for [`known`], and the struct must stay where it is until `fill`.
    pub(super) unsafe fn new(place: *mut T) -> Outcome<Out<T>> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { known(place) }?;
        Ok(Out { place, bytes })
    }

    /// Fills in what the caller's struct has; its size stays.
    pub(super) fn fill(self, value: &T) {
        let head = size_of::<usize>();
        let from: *const u8 = std::ptr::from_ref(value).cast();
        // SAFETY: `bytes` of both are there (see `known`), and the size is left out.
        unsafe {
            let to = self.place.cast::<u8>().add(head);
            std::ptr::copy_nonoverlapping(from.add(head), to, self.bytes - head);
        }
    }
}
