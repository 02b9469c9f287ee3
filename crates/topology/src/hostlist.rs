//! Slurm's hostlist expressions: `node[01-16,20],login1`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Most names that one expression may stand for.
pub const NAMES_MAX: usize = 1 << 20;

/// Why an expression names no hosts: a mistake in the expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostlistError {
    /// `,,`, a comma at an end, or nothing at all.
    #[error("`{0}` has an empty entry; write names separated by single commas")]
    EmptyEntry(String),
    /// A bracket without its partner, or one inside another.
    #[error("`{0}` has unbalanced brackets; write ranges as `name[1-4,7]`")]
    Brackets(String),
    /// Something other than numbers between brackets.
    #[error("`{0}` is no range; write numbers such as `7` or `01-16` between brackets")]
    Range(String),
    /// A range that counts down.
    #[error("range `{0}` counts down; write the smaller number first")]
    Descending(String),
    /// More names than any fabric has.
    #[error("`{expression}` stands for more than {max} names", max = NAMES_MAX)]
    TooMany {
        /// The expression.
        expression: String,
    },
}

/// Every name that `expression` stands for, in its order.
///
/// A number keeps the width of its range's first number: `[01-10]` gives `01` to `10`. Several
/// brackets in one name combine; the last one varies fastest.
///
/// # Errors
/// [`HostlistError`].
pub fn expand(expression: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for entry in split_outside_brackets(expression)? {
        if entry.is_empty() {
            return Err(HostlistError::EmptyEntry(expression.to_string()));
        }
        names.append(&mut expand_entry(entry, NAMES_MAX - names.len())?);
    }
    Ok(names)
}

fn split_outside_brackets(expression: &str) -> Result<Vec<&str>, HostlistError> {
    let unbalanced = || HostlistError::Brackets(expression.to_string());
    let mut entries = Vec::new();
    let mut inside = false;
    let mut start = 0;
    for (at, byte) in expression.bytes().enumerate() {
        match byte {
            b'[' if inside => return Err(unbalanced()),
            b']' if !inside => return Err(unbalanced()),
            b'[' => inside = true,
            b']' => inside = false,
            b',' if !inside => {
                entries.push(expression[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(unbalanced());
    }
    entries.push(expression[start..].trim());
    Ok(entries)
}

fn expand_entry(entry: &str, names_max: usize) -> Result<Vec<String>, HostlistError> {
    let too_many = || HostlistError::TooMany { expression: entry.to_string() };
    let mut names = Vec::from([String::new()]);
    let mut rest = entry;
    while let Some((before, after)) = rest.split_once('[') {
        let (ranges, behind) = after.split_once(']').expect("brackets were balanced");
        let numbers = expand_ranges(ranges, names_max)?;
        if names.len().saturating_mul(numbers.len()) > names_max {
            return Err(too_many());
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = behind;
    }
    if names.len() > names_max {
        return Err(too_many());
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

fn expand_ranges(ranges: &str, names_max: usize) -> Result<Vec<String>, HostlistError> {
    let mut numbers = Vec::new();
    for range in ranges.split(',').map(str::trim) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (number(first, range)?, number(last, range)?);
        if low > high {
            return Err(HostlistError::Descending(range.to_string()));
        }
        if high - low >= (names_max - numbers.len()) as u64 {
            return Err(HostlistError::TooMany { expression: ranges.to_string() });
        }
        let width = first.len();
        numbers.extend((low..=high).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn number(digits: &str, range: &str) -> Result<u64, HostlistError> {
    let wrong = || HostlistError::Range(range.to_string());
    // `parse` alone would also take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    digits.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn expressions_of_slurms_manual() {
        let cases: &[(&str, &[&str])] = &[
            ("login", &["login"]),
            ("node[01-03,20]", &["node01", "node02", "node03", "node20"]),
            ("node[9-11]", &["node9", "node10", "node11"]),
            ("a[1-2]b[08-09]-ib", &["a1b08-ib", "a1b09-ib", "a2b08-ib", "a2b09-ib"]),
            ("x[5],y, z[1,3]", &["x5", "y", "z1", "z3"]),
        ];
        for (expression, names) in cases {
            assert_eq!(expand(expression).unwrap(), *names, "{expression}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("", HostlistError::EmptyEntry("".into())),
            ("a,,b", HostlistError::EmptyEntry("a,,b".into())),
            ("a[1-2", HostlistError::Brackets("a[1-2".into())),
            ("a1]", HostlistError::Brackets("a1]".into())),
            ("a[[1]]", HostlistError::Brackets("a[[1]]".into())),
            ("a[]", HostlistError::Range("".into())),
            ("a[1-b]", HostlistError::Range("1-b".into())),
            ("a[+1-2]", HostlistError::Range("+1-2".into())),
            ("a[1-2-3]", HostlistError::Range("1-2-3".into())),
            ("a[3-1]", HostlistError::Descending("3-1".into())),
            ("a[0-1048576]", HostlistError::TooMany { expression: "0-1048576".into() }),
        ];
        for (expression, error) in cases {
            assert_eq!(expand(expression), Err(error), "{expression}");
        }
        let product = "a[0-1023][0-1024]";
        assert_eq!(expand(product), Err(HostlistError::TooMany { expression: product.into() }));
        assert_eq!(expand("a[0-1048575]").map(|names| names.len()), Ok(NAMES_MAX));
        assert!(matches!(expand("a[0-1048575],b"), Err(HostlistError::TooMany { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_expanded_or_refused(text in "[a-c0-9\\[\\],-]{0,24}") {
            if let Ok(names) = expand(&text) {
                prop_assert!(!names.is_empty() && names.len() <= NAMES_MAX);
            }
        }

        #[test]
        fn a_range_gives_each_number_once(low in 0_u64..2000, count in 0_u64..300, width in 0_usize..6) {
            let names = expand(&format!("n[{low:0width$}-{}]", low + count)).unwrap();
            let numbers: Vec<u64> = names.iter().map(|name| name[1..].parse().unwrap()).collect();
            prop_assert_eq!(numbers, (low..=low + count).collect::<Vec<_>>());
        }
    }
}
