//! What crates with an eBPF program have in common: how it is compiled, with headers of its source (`include`), and
//! how the kernel's refusals read.
//!
//! Must not know what a program does.

mod compile;

/// The bytes of an object that [`compile()`] has built for the crate that asks, aligned; none if there was no clang.
#[macro_export]
macro_rules! object {
    ($name:literal) => {{
        #[cfg(program_built)]
        {
            aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/", $name))
        }
        #[cfg(not(program_built))]
        {
            &[]
        }
    }};
}

pub use compile::{compile, include};

/// An error and what caused it, in one line.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text += &format!(": {deeper}");
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Level(&'static str, Option<Box<Self>>);

    impl std::fmt::Display for Level {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Level {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|it| it as _)
        }
    }

    #[test]
    fn causes_follow_in_one_line() {
        let error = Level("not loaded", Some(Box::new(Level("refused", None))));
        assert_eq!(causes(&error), "not loaded: refused");
    }
}
