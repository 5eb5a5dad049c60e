//! Options: lines of NAME=VALUE, as a dataset is opened and created with.

use std::sync::Once;

use gpugtiff::options::create::{Asked, CreateOptions, hollow_rows, prepare};
use gpugtiff::options::{OpenOptions, Scope, names, xml};

use crate::input::Input;

/// What GTiff says of its own options, as far as it is looked at.
const GTIFF: &str = "<CreationOptionList><Option name='COMPRESS' type='string-select'>\
    <Value>NONE</Value><Value>LZW</Value><Value>JPEG</Value><Value>LZMA</Value></Option>\
    </CreationOptionList>";

/// Lets GDAL's messages go.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    // SAFETY: GDAL's own handler, which ignores what it is told.
    ONCE.call_once(|| unsafe {
        gdal_sys::CPLSetErrorHandler(Some(gdal_sys::CPLQuietErrorHandler));
    });
}

pub(crate) fn run(data: &[u8]) {
    quiet();
    let mut input = Input::new(data);
    let flags = input.u8();
    let size = (u64::from(input.u16()), u64::from(input.u16()));
    let text = String::from_utf8_lossy(input.rest()).into_owned();
    let list: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let find = |name: &str| {
        list.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
    };
    if let Ok(options) = OpenOptions::parse(find, find) {
        assert!((1..=1024).contains(&options.threads), "{} threads", options.threads);
        assert!((1 << 20..=65536 << 20).contains(&options.batch_bytes));
        assert!(options.device.is_none_or(|device| device < 1024));
    }
    let asked = Asked {
        list: &list,
        floats: flags & 1 != 0,
        as_gtiff: flags & 2 != 0,
        stream: flags & 4 != 0,
        gtiff_xml: GTIFF,
        width: size.0,
    };
    let Ok(prepared) = prepare(&asked) else { return };
    let ours = |name: &str| names(Scope::Create).any(|n| n.eq_ignore_ascii_case(name));
    assert!(!prepared.for_gtiff.iter().any(|(name, _)| ours(name)), "{prepared:?}");
    let create = CreateOptions::parse(&prepared.for_gtiff, &list);
    assert!((1..=12).contains(&create.levels.0) && (1..=22).contains(&create.levels.1));
    let rows = hollow_rows(&prepared.for_gtiff, size, 1 + u64::from(flags >> 4));
    assert!(rows >= 1 && rows <= size.1.max(1), "{rows} rows of {size:?}");
    assert!(!xml(Scope::Open).contains('&') && !xml(Scope::Create).contains('&'));
}
