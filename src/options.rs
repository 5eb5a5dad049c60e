//! The driver's options: one table, from which the XML list that GDAL validates
//! against, the parser and the documentation come.
#![forbid(unsafe_code)]

pub mod create;
pub mod tile_file;

use std::fmt::Write;

use crate::engine::cuda::{Gds, Verify};
use crate::engine::select::Wish;
use crate::error::{Error, Result};

/// What an option's value may be.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number in a range.
    Number(u64, u64),
    /// A number of threads or ALL_CPUS.
    Threads,
    /// A device's number or AUTO.
    Device,
}

/// Where an option is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// When a file is opened.
    Open,
    /// When one is created.
    Create,
}

struct Spec {
    name: &'static str,
    /// Of no use elsewhere. Those of no use when a file is opened are the last ones.
    only: Option<Scope>,
    kind: Kind,
    default: &'static str,
    help: &'static str,
}

/// Every option of ours; GTiff's own are passed on to it.
const TABLE: &[Spec] = &[
    Spec {
        name: "ENGINE",
        only: None,
        kind: Kind::Choice(&["AUTO", "CPU", "CUDA"]),
        default: "AUTO",
        help: "What decodes and encodes tiles. CUDA is an error that says why where it cannot be had",
    },
    Spec {
        name: "NUM_THREADS",
        only: None,
        kind: Kind::Threads,
        default: "ALL_CPUS",
        help: "Number of worker threads for compression/decompression. \
               Can be set to ALL_CPUS. Unset, GDAL_NUM_THREADS counts",
    },
    Spec {
        name: "BATCH_MB",
        only: None,
        kind: Kind::Number(1, 65536),
        default: "64",
        help: "Megabytes of pixels in one batch: bounds the memory used",
    },
    Spec {
        name: "DEVICE",
        only: None,
        kind: Kind::Device,
        default: "AUTO",
        help: "Which GPU, counted from 0. AUTO is the one with most free memory",
    },
    Spec {
        name: "DEVICE_MB",
        only: None,
        kind: Kind::Number(1, 1 << 20),
        default: "",
        help: "Megabytes of GPU memory used, temporary memory included. \
               Unset, the smaller of 2048 and a quarter of what is free",
    },
    Spec {
        name: "VERIFY",
        only: None,
        kind: Kind::Choice(&["FIRST", "ALL", "NO"]),
        default: "FIRST",
        help: "Which results of the GPU are compared with the CPU: \
               tiles of the first batch of each kind, all, or none",
    },
    Spec {
        name: "GDS",
        only: Some(Scope::Open),
        kind: Kind::Choice(&["AUTO", "YES", "NO"]),
        default: "NO",
        help: "GPUDirect Storage: compressed tiles of local files are read straight into GPU memory. \
               AUTO: where cuFile is not in compatibility mode. \
               YES: or an error that says why not; ENGINE=AUTO means CUDA then",
    },
    Spec {
        name: "COPY_TILES",
        only: Some(Scope::Create),
        kind: Kind::Choice(&["AUTO", "NO"]),
        default: "AUTO",
        help: "Copy tiles of a TIFF as they are where source and target agree. \
               NO: decode them, which notices damage",
    },
    Spec {
        name: "LEVEL",
        only: Some(Scope::Create),
        kind: Kind::Number(1, 22),
        default: "",
        help: "ZLEVEL, ZSTD_LEVEL or LZMA_PRESET, whichever COMPRESS calls for",
    },
];

/// What a dataset was opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// ENGINE.
    pub engine: Wish,
    /// NUM_THREADS.
    pub threads: usize,
    /// BATCH_MB, in bytes.
    pub batch_bytes: usize,
    /// DEVICE; none is AUTO.
    pub device: Option<u32>,
    /// DEVICE_MB, in bytes.
    pub device_bytes: Option<usize>,
    /// VERIFY.
    pub verify: Verify,
    /// GDS.
    pub gds: Gds,
}

impl OpenOptions {
    /// Parses. `given` looks up an open option, `config` a configuration option.
    pub fn parse(
        given: impl Fn(&str) -> Option<String>,
        config: impl Fn(&str) -> Option<String>,
    ) -> Result<OpenOptions> {
        let mut values = Vec::with_capacity(TABLE.len());
        for spec in table(Scope::Open) {
            let (name, value) = match given(spec.name) {
                Some(value) => (spec.name.to_string(), Some(value)),
                None => {
                    let name = format!("GPUGTIFF_{}", spec.name);
                    let value = config(&name);
                    (name, value)
                }
            };
            if let Some(value) = &value {
                spec.check(&name, value)?;
            }
            values.push(value);
        }
        let value = |name: &str| {
            let i = TABLE.iter().position(|spec| spec.name == name)?;
            values[i].clone().or_else(|| Some(TABLE[i].default.to_string()))
        };
        let threads = values[1]
            .as_deref()
            .and_then(threads)
            .or_else(|| config("GDAL_NUM_THREADS").as_deref().and_then(threads))
            .unwrap_or_else(all_cpus);
        let engine = match value("ENGINE").unwrap_or_default().to_ascii_uppercase().as_str() {
            "CPU" => Wish::Cpu,
            "CUDA" => Wish::Cuda,
            _ => Wish::Auto,
        };
        let batch_mb: usize = value("BATCH_MB").and_then(|v| v.trim().parse().ok()).unwrap_or(64);
        let device_mb: Option<usize> = value("DEVICE_MB").and_then(|v| v.trim().parse().ok());
        Ok(OpenOptions {
            engine,
            threads,
            batch_bytes: batch_mb << 20,
            device: value("DEVICE").and_then(|v| v.trim().parse().ok()),
            device_bytes: device_mb.map(|mb| mb << 20),
            verify: match value("VERIFY").unwrap_or_default().to_ascii_uppercase().as_str() {
                "ALL" => Verify::All,
                "NO" => Verify::No,
                _ => Verify::First,
            },
            gds: match value("GDS").unwrap_or_default().to_ascii_uppercase().as_str() {
                "AUTO" => Gds::Auto,
                "YES" => Gds::Yes,
                _ => Gds::No,
            },
        })
    }
}

impl Spec {
    fn check(&self, name: &str, value: &str) -> Result<()> {
        let number = |low: u64, high: u64| {
            value.trim().parse::<u64>().is_ok_and(|n| (low..=high).contains(&n))
        };
        let valid = match self.kind {
            Kind::Choice(words) => words.iter().any(|w| w.eq_ignore_ascii_case(value)),
            Kind::Number(low, high) => number(low, high),
            Kind::Threads => threads(value).is_some(),
            Kind::Device => value.trim().eq_ignore_ascii_case("AUTO") || number(0, 1023),
        };
        if valid {
            return Ok(());
        }
        Err(Error::BadOption { name: name.into(), value: value.into(), expected: self.expected() })
    }

    fn expected(&self) -> String {
        match self.kind {
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Number(low, high) => format!("a whole number from {low} to {high}"),
            Kind::Threads => "ALL_CPUS or a whole number from 1 to 1024".into(),
            Kind::Device => "AUTO or the number of a GPU, counted from 0".into(),
        }
    }
}

fn threads(value: &str) -> Option<usize> {
    if value.trim().eq_ignore_ascii_case("ALL_CPUS") {
        return Some(all_cpus());
    }
    value.trim().parse().ok().filter(|n| (1..=1024).contains(n))
}

fn all_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The names in the table.
pub fn names(scope: Scope) -> impl Iterator<Item = &'static str> {
    table(scope).map(|spec| spec.name)
}

fn table(scope: Scope) -> impl Iterator<Item = &'static Spec> {
    TABLE.iter().filter(move |spec| spec.only.is_none_or(|only| only == scope))
}

/// The options as GDAL's XML, without the list element around them.
pub fn xml(scope: Scope) -> String {
    let mut xml = String::new();
    for spec in table(scope) {
        let kind = match spec.kind {
            Kind::Choice(_) => "string-select",
            Kind::Number(..) => "int",
            Kind::Threads | Kind::Device => "string",
        };
        let _ =
            write!(xml, "  <Option name='{}' type='{kind}' description='{}'", spec.name, spec.help);
        if !spec.default.is_empty() {
            let _ = write!(xml, " default='{}'", spec.default);
        }
        match spec.kind {
            Kind::Choice(words) => {
                xml.push('>');
                words.iter().for_each(|w| xml.push_str(&format!("<Value>{w}</Value>")));
                xml.push_str("</Option>\n");
            }
            Kind::Number(low, high) => {
                let _ = writeln!(xml, " min='{low}' max='{high}'/>");
            }
            Kind::Threads | Kind::Device => xml.push_str("/>\n"),
        }
    }
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[(&str, &str)], config: &[(&str, &str)]) -> Result<OpenOptions> {
        let look = |list: &[(&str, &str)], name: &str| {
            list.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
        };
        OpenOptions::parse(|n| look(given, n), |n| look(config, n))
    }

    #[test]
    fn defaults() {
        let options = parse(&[], &[]).unwrap();
        assert_eq!(options.engine, Wish::Auto);
        assert_eq!(options.batch_bytes, 64 << 20);
        assert_eq!(options.threads, all_cpus());
        assert_eq!(options.gds, Gds::No);
        assert_eq!(parse(&[("GDS", "yes")], &[]).unwrap().gds, Gds::Yes);
        assert_eq!(parse(&[], &[("GPUGTIFF_GDS", "AUTO")]).unwrap().gds, Gds::Auto);
    }

    #[test]
    fn open_options_go_before_configuration() {
        let config = [("GPUGTIFF_NUM_THREADS", "3"), ("GDAL_NUM_THREADS", "5")];
        assert_eq!(parse(&[("NUM_THREADS", "7")], &config).unwrap().threads, 7);
        assert_eq!(parse(&[], &config).unwrap().threads, 3);
        assert_eq!(parse(&[], &config[1..]).unwrap().threads, 5);
        assert_eq!(parse(&[], &[("GDAL_NUM_THREADS", "-1")]).unwrap().threads, all_cpus());
    }

    #[test]
    fn bad_values_are_named() {
        for (name, value) in [
            ("ENGINE", "GPU"),
            ("BATCH_MB", "0"),
            ("BATCH_MB", "many"),
            ("NUM_THREADS", "-3"),
            ("NUM_THREADS", "0"),
            ("DEVICE", "-1"),
            ("DEVICE", "first"),
            ("DEVICE_MB", "0"),
            ("VERIFY", "YES"),
            ("GDS", "FIRST"),
        ] {
            let text = parse(&[(name, value)], &[]).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{name}={value} is not valid: ")), "{text}");
            let config = format!("GPUGTIFF_{name}");
            let text = parse(&[], &[(&config, value)]).unwrap_err().to_string();
            assert!(text.starts_with(&config), "{text}");
        }
    }

    #[test]
    fn every_option_is_in_the_xml() {
        for scope in [Scope::Open, Scope::Create] {
            let xml = xml(scope);
            names(scope).for_each(|name| {
                assert!(xml.contains(&format!("name='{name}'")), "{name}");
            });
            assert!(!xml.contains('&'), "{xml}");
        }
    }
}
