//! The choices between few words.

/// A setting that is one of few words.
pub(super) trait Choice: Copy + 'static {
    /// Every choice with its word.
    const WORDS: &'static [(Self, &'static str)];
}

macro_rules! choice {
    ($name:ident, $($variant:ident => $word:literal),+) => {
        impl Choice for $name {
            const WORDS: &'static [(Self, &'static str)] = &[$(($name::$variant, $word)),+];
        }

        impl $name {
            /// The word used in the database and on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }
        }
    };
}

/// How a receiver is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// By `POST`.
    #[default]
    Post,
    /// By `PUT`.
    Put,
}

/// Whether events of one key wait for each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ordering {
    /// Each goes as soon as it can.
    #[default]
    None,
    /// One at a time, in the order of publishing.
    ByKey,
}

/// What becomes of the events behind one that was given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// They go on without it.
    #[default]
    Skip,
    /// They wait until somebody decides.
    Block,
}

choice!(Method, Post => "POST", Put => "PUT");
choice!(Ordering, None => "none", ByKey => "by_key");
choice!(OnExhausted, Skip => "skip", Block => "block");
