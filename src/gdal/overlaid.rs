//! A file as others shall see it: with some bytes changed. GDAL's /vsisparse/ puts it together from
//! the file itself and single bytes; nothing is copied.

use std::ffi::{CStr, CString};
use std::fmt::Write;

use super::log::c_string;
use super::memory::MemoryFile;
use crate::tiff::overlay::Patch;

/// Such a file, there as long as this is.
#[derive(Debug)]
pub struct Overlaid {
    path: CString,
    _xml: MemoryFile<'static>,
}

impl Overlaid {
    /// The file of this name and length with the patches, whose offsets grow; `None` where GDAL
    /// refuses.
    pub fn new(name: &str, len: u64, patches: &[Patch]) -> Option<Overlaid> {
        let xml = MemoryFile::new("xml", describe(name, len, patches).into_bytes())?;
        let path = c_string(&format!("/vsisparse/{}", xml.path().to_string_lossy()));
        Some(Overlaid { path, _xml: xml })
    }

    /// Its name.
    pub fn path(&self) -> &CStr {
        &self.path
    }
}

fn describe(name: &str, len: u64, patches: &[Patch]) -> String {
    let mut xml = format!("<VSISparseFile><Length>{len}</Length>");
    let name = escaped(name);
    let as_it_is = |xml: &mut String, from: u64, to: u64| {
        if to > from {
            let _ = write!(
                xml,
                "<SubfileRegion><Filename relative='0'>{name}</Filename><DestinationOffset>{from}\
                 </DestinationOffset><SourceOffset>{from}</SourceOffset><RegionLength>{}\
                 </RegionLength></SubfileRegion>",
                to - from
            );
        }
    };
    let mut at = 0;
    for patch in patches.iter().filter(|patch| patch.offset < len) {
        as_it_is(&mut xml, at, patch.offset);
        let _ = write!(
            xml,
            "<ConstantRegion><DestinationOffset>{}</DestinationOffset><RegionLength>1\
             </RegionLength><Value>{}</Value></ConstantRegion>",
            patch.offset, patch.byte
        );
        at = patch.offset + 1;
    }
    as_it_is(&mut xml, at, len);
    xml + "</VSISparseFile>"
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
