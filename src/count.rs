//! Numbers that only grow, from any thread.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// One of them.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn bump(&self) {
        self.add(1);
    }

    /// `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// At least `n`.
    pub fn raise(&self, n: u64) {
        self.0.fetch_max(n, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A struct of [`Count`]s with the names that users see them by.
macro_rules! counts {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident => $label:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        $vis struct $name { $($(#[$doc])* $vis $field: $crate::count::Count,)* }

        impl $name {
            /// Names and values, in a fixed order.
            $vis fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($label, self.$field.get()),)*]
            }
        }
    };
}

pub(crate) use counts;
