//! Sizes as a person types them: `8,1K,1M`, or every power of two of a range, `4:1M`.

use crate::usage::UsageError;

/// Longest vector of a process: 1 GiB.
const SIZE_MAX_BYTES: u64 = 1 << 30;

/// Reads `text` into sizes in bytes, each a whole number of elements.
///
/// # Errors
/// If a size is not a number, is 0, is beyond 1 GiB, or is no multiple of an element.
pub(crate) fn parse(text: &str, element_bytes: u64) -> Result<Vec<u64>, UsageError> {
    let sizes = match text.split_once(':') {
        Some((first, last)) => powers_of_two(text, size(first)?, size(last)?, element_bytes)?,
        None => text.split(',').map(size).collect::<Result<Vec<_>, _>>()?,
    };
    for &bytes in &sizes {
        if bytes % element_bytes != 0 {
            return Err(UsageError::new(
                "--sizes",
                bytes.to_string(),
                format!("a multiple of the element's {element_bytes} bytes is allowed"),
            ));
        }
    }
    Ok(sizes)
}

/// The sizes of who names none.
pub(crate) fn usual(element_bytes: u64) -> Vec<u64> {
    vec![8.max(element_bytes), 1 << 10, 64 << 10, 1 << 20]
}

/// 1000 up to 8 KiB as in the OSU benchmarks; fewer above, so that every row takes about as long.
pub(crate) fn usual_iterations(size_bytes: u64) -> u64 {
    match size_bytes {
        0..=8_192 => 1_000,
        8_193..=1_048_576 => 100,
        _ => 20,
    }
}

/// Every power of two from `first` to `last`, none shorter than an element.
fn powers_of_two(
    text: &str,
    first: u64,
    last: u64,
    element_bytes: u64,
) -> Result<Vec<u64>, UsageError> {
    let start = first.max(element_bytes).next_power_of_two();
    let sizes: Vec<u64> = std::iter::successors(Some(start), |size| Some(size * 2))
        .take_while(|&size| size <= last)
        .collect();
    if sizes.is_empty() {
        return Err(UsageError::new(
            "--sizes",
            text,
            format!(
                "FIRST:LAST that includes a power of two of at least {element_bytes} bytes is allowed"
            ),
        ));
    }
    Ok(sizes)
}

/// Reads one size: digits, and K, M or G for powers of 1024.
fn size(text: &str) -> Result<u64, UsageError> {
    let refused =
        || UsageError::new("--sizes", text, "bytes from 1 to 1G, such as 8, 1K or 4M, are allowed");
    let (digits, unit_bytes) = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g']) {
        Some(digits) => (digits, unit(text.as_bytes()[digits.len()])),
        None => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused());
    }
    let count: u64 = digits.parse().map_err(|_| refused())?;
    let bytes = count.checked_mul(unit_bytes).ok_or_else(refused)?;
    if !(1..=SIZE_MAX_BYTES).contains(&bytes) {
        return Err(refused());
    }
    Ok(bytes)
}

fn unit(letter: u8) -> u64 {
    match letter.to_ascii_uppercase() {
        b'K' => 1 << 10,
        b'M' => 1 << 20,
        _ => 1 << 30,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse("8,1K,1M", 4).unwrap(), [8, 1024, 1 << 20]);
        assert_eq!(parse("4:64", 4).unwrap(), [4, 8, 16, 32, 64]);
        assert_eq!(parse("1:16", 8).unwrap(), [8, 16]);
        assert_eq!(parse("5:40", 1).unwrap(), [8, 16, 32]);
        assert_eq!(parse("1g", 8).unwrap(), [1 << 30]);
    }

    #[test]
    fn refusals_name_the_size_at_fault() {
        for (text, value) in [
            ("8,x", "x"),
            ("", ""),
            ("0", "0"),
            ("8,,16", ""),
            ("2G", "2G"),
            ("99999999999999999999", "99999999999999999999"),
            ("6", "6"),
            ("K", "K"),
            ("+8", "+8"),
            ("64:8", "64:8"),
            ("1:2:3", "2:3"),
        ] {
            let error = parse(text, 4).unwrap_err();
            assert_eq!((error.option.as_str(), error.value.as_str()), ("--sizes", value));
        }
    }
}
