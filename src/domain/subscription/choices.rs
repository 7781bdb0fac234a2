//! Settings of a subscription with a fixed set of values.

/// A setting with a fixed set of values.
pub(super) trait Choice: Copy + 'static {
    /// Every value with its name.
    const NAMES: &'static [(Self, &'static str)];
}

macro_rules! choice {
    ($choice:ident, $($variant:ident => $name:literal),+) => {
        impl Choice for $choice {
            const NAMES: &'static [(Self, &'static str)] = &[$(($choice::$variant, $name)),+];
        }

        impl $choice {
            /// Returns the name used in the database and in the API.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($choice::$variant => $name),+
                }
            }
        }
    };
}

/// The HTTP method of a webhook request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    #[default]
    Post,
    Put,
}

/// Whether events with the same ordering key are sent one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ordering {
    /// Each event is sent as soon as possible.
    #[default]
    None,
    /// Events of a key are sent one at a time, in the order of publishing.
    ByKey,
}

/// What happens to later events of an ordering key after a delivery is exhausted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// They are sent without waiting for it.
    #[default]
    Skip,
    /// They wait until an operator decides.
    Block,
}

choice!(Method, Post => "POST", Put => "PUT");
choice!(Ordering, None => "none", ByKey => "by_key");
choice!(OnExhausted, Skip => "skip", Block => "block");
