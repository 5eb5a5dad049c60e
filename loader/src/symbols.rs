//! The dynamic section of a loaded object: its name and the functions that it defines (ELF,
//! 64 bits; the hash table is DT_GNU_HASH).

use std::ffi::{CStr, c_char, c_void};

const DT_NULL: usize = 0;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_SONAME: usize = 14;
const DT_GNU_HASH: usize = 0x6fff_fef5;

/// Addresses of a loaded object's tables.
#[derive(Default)]
pub(crate) struct Dynamic {
    base: usize,
    strings: Option<usize>,
    symbols: Option<usize>,
    hashes: Option<usize>,
    soname: Option<usize>,
}

impl Dynamic {
    /// # Safety
    /// `section` must be the address of the dynamic section of an object that is loaded at `base`,
    /// and the object must stay loaded while this is used.
    pub(crate) unsafe fn new(base: usize, section: usize) -> Self {
        let mut tables = Self { base, ..Self::default() };
        let mut entry = section as *const [usize; 2];
        // Some platforms leave these as they are in the file, not relocated.
        let place = |value: usize| Some(if value < base { base + value } else { value });
        loop {
            // SAFETY: the section ends with DT_NULL, where the loop ends.
            let [tag, value] = unsafe { entry.read() };
            match tag {
                DT_NULL => return tables,
                DT_STRTAB => tables.strings = place(value),
                DT_SYMTAB => tables.symbols = place(value),
                DT_GNU_HASH => tables.hashes = place(value),
                DT_SONAME => tables.soname = Some(value),
                _ => {}
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
    }

    pub(crate) fn soname(&self) -> Option<&CStr> {
        // SAFETY: an offset into the object's string table, which is mapped.
        Some(unsafe { CStr::from_ptr((self.strings? + self.soname?) as *const c_char) })
    }

    /// The address of a function that the object itself defines.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        let (table, symbols, strings) = (self.hashes?, self.symbols?, self.strings?);
        // SAFETY: the tables of a loaded object are mapped and consistent, as ld.so reads them in the
        // same way.
        let word = |at: usize| unsafe { (at as *const u32).read() };
        let (buckets, first, bloom) = (word(table), word(table + 4), word(table + 8));
        let bucket = table + 16 + bloom as usize * size_of::<usize>();
        let chain = bucket + 4 * buckets as usize;
        let hash = gnu_hash(name);
        if buckets == 0 {
            return None;
        }
        let mut index = word(bucket + 4 * (hash % buckets) as usize);
        while index >= first {
            let entry = word(chain + 4 * (index - first) as usize);
            // SAFETY: the hash table holds indices of symbols.
            let symbol = unsafe { (symbols as *const libc::Elf64_Sym).add(index as usize).read() };
            // SAFETY: a symbol's name is an offset into the string table.
            let called =
                unsafe { CStr::from_ptr((strings + symbol.st_name as usize) as *const c_char) };
            if entry | 1 == hash | 1 && called == name && symbol.st_shndx != 0 {
                return Some((self.base + symbol.st_value as usize) as *const c_void);
            }
            if entry & 1 == 1 {
                return None;
            }
            index += 1;
        }
        None
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(byte));
    name.to_bytes().iter().fold(5381, step)
}
