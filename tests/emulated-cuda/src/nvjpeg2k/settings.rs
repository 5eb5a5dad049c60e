//! The settings of nvJPEG2000.

use crate::settings::choice;

/// What becomes of a codestream that can't be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Corrupt {
    /// Parsing it says so.
    Parse,
    /// Decoding it says so.
    Decode,
    /// Success and noise.
    Garbage,
    /// Success, and nothing is written.
    Unwritten,
    /// A sticky fault of the device.
    Fault,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Nvjpeg2kSettings {
    /// No handle is created.
    pub(crate) is_refused: bool,
    pub(crate) corrupt: Option<Corrupt>,
    /// What a state had is not freed with it.
    pub(crate) hoards: bool,
}

impl Nvjpeg2kSettings {
    /// Changes one setting; nothing where it is not understood.
    pub(crate) fn change(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "NVJPEG2K" => self.is_refused = choice(value, &[("there", false), ("refused", true)])?,
            "J2K_HOARD" => self.hoards = choice(value, &[("0", false), ("1", true)])?,
            "J2K_CORRUPT" => {
                let choices = [
                    ("", None),
                    ("parse", Some(Corrupt::Parse)),
                    ("decode", Some(Corrupt::Decode)),
                    ("garbage", Some(Corrupt::Garbage)),
                    ("unwritten", Some(Corrupt::Unwritten)),
                    ("fault", Some(Corrupt::Fault)),
                ];
                self.corrupt = choice(value, &choices)?;
            }
            _ => return None,
        }
        Some(())
    }
}
