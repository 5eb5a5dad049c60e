//! What a shared library links, read from its file without mapping it (ELF, 64 bits, this
//! machine's byte order).
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// More than any library has: a damaged file must not cost memory.
const MOST: u64 = 1 << 20;
const LONGEST_NAME: usize = 4096;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// The DT_NEEDED entries of a library.
pub(crate) fn needed(file: &File) -> io::Result<Vec<CString>> {
    let segments = segments(file)?;
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC).ok_or_else(bad)?;
    let dynamic = bytes(file, dynamic.offset, dynamic.size)?;
    let entries = dynamic.chunks_exact(16).map(|entry| (u64_at(entry, 0), u64_at(entry, 8)));
    let entries: Vec<_> = entries.take_while(|entry| entry.0 != DT_NULL).collect();
    let strings = entries.iter().find(|entry| entry.0 == DT_STRTAB).ok_or_else(bad)?.1;
    let holds = |segment: &&Segment| {
        segment.kind == PT_LOAD
            && strings.checked_sub(segment.address).is_some_and(|into| into < segment.size)
    };
    let segment = segments.iter().find(holds).ok_or_else(bad)?;
    let strings = segment.offset.checked_add(strings - segment.address).ok_or_else(bad)?;
    let names = entries.iter().filter(|entry| entry.0 == DT_NEEDED);
    names.map(|entry| name(file, strings.checked_add(entry.1).ok_or_else(bad)?)).collect()
}

fn segments(file: &File) -> io::Result<Vec<Segment>> {
    let header = bytes(file, 0, 64)?;
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if header[..6] != [0x7f, b'E', b'L', b'F', 2, order] {
        return Err(bad());
    }
    let (size, count) = (u16_at(&header, 54), u16_at(&header, 56));
    if size < 56 {
        return Err(bad());
    }
    let table = bytes(file, u64_at(&header, 32), u64::from(size) * u64::from(count))?;
    let segment = |entry: &[u8]| Segment {
        kind: u32::from_ne_bytes(array(entry, 0)),
        offset: u64_at(entry, 8),
        address: u64_at(entry, 16),
        size: u64_at(entry, 32),
    };
    Ok(table.chunks_exact(usize::from(size)).map(segment).collect())
}

/// The string at an offset.
fn name(file: &File, offset: u64) -> io::Result<CString> {
    let mut buffer = [0; LONGEST_NAME];
    let length = file.read_at(&mut buffer, offset)?;
    let name = CStr::from_bytes_until_nul(&buffer[..length]).map_err(|_| bad())?;
    Ok(name.to_owned())
}

fn bytes(file: &File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    if size > MOST {
        return Err(bad());
    }
    let mut buffer = vec![0; size as usize];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}

/// `at + N` lies inside `bytes`: the callers pass constants below the size of what they read.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(array(bytes, at))
}

fn bad() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "not a shared library of this machine")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    fn needed_of(bytes: &[u8]) -> io::Result<Vec<CString>> {
        let path = std::env::temp_dir().join(format!(
            "gpugtiff-elf-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let answer = needed(&File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        answer
    }

    #[test]
    fn a_program_links_libc() {
        let names = needed(&File::open(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(names.iter().any(|name| name.to_bytes().starts_with(b"libc.so")), "{names:?}");
    }

    #[test]
    fn damaged_files_are_errors_or_answers_never_panics() {
        let whole = own();
        for length in [0, 1, 63, 64, 100, 64 + 56, 4096] {
            assert!(needed_of(&whole[..length]).is_err(), "{length}");
        }
        // Every byte of the header and of the first program headers.
        let mut damaged = whole[..whole.len().min(1 << 16)].to_vec();
        for at in 0..64 + 56 * 4 {
            let kept = std::mem::replace(&mut damaged[at], 0xff);
            let _ = needed_of(&damaged);
            damaged[at] = kept;
        }
    }
}
