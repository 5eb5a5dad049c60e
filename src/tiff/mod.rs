//! TIFF directories: the header, one directory, how its pixels are stored, and where; and
//! directories to be written.
//!
//! Knows nothing of GDAL, of codecs' insides, of threads or devices, and reads only through
//! [`crate::io::ByteSource`]. Invariant: a number from the file is checked before it sizes an
//! allocation, becomes an index or takes part in arithmetic, so a hostile file is an error and
//! never a panic.
//!
//! What is merely unusual is `Error::Unsupported`, so that the caller asks GTiff, whose
//! tolerances (libtiff 4.5.0) are many; what contradicts the file itself is `Error::Corrupt`.
//!
//! ```text
//! let header = Header::read(&source)?;
//! let ifd = Ifd::read(&source, &header, offset)?;
//! let layout = Layout::new(&header, &ifd)?;
//! let striles = Striles::new(&header, &ifd, &layout)?;
//! ```

#![forbid(unsafe_code)]

mod array;
pub mod complete;
pub mod directory;
pub mod excerpt;
#[cfg(test)]
pub(crate) mod fixture;
pub mod header;
pub mod ifd;
pub mod layout;
pub mod leaders;
pub mod overlay;
pub mod striles;
pub mod tag;

pub use directory::{Directory, Strile};
pub use excerpt::Excerpt;
pub use header::{ByteOrder, Header};
pub use ifd::{Entry, Ifd};
pub use layout::{Layout, Planar};
pub use striles::{ByteRange, Striles};
