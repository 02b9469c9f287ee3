//! Texts of others, as they may be shown.
//!
//! Names and labels come from jobs. Shown as they are, one could move the cursor of a reader's terminal, feign lines
//! that nobody wrote, or turn the order of what follows it.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write as _;

/// What stands for the rest of a text that was cut.
const CUT: &str = "…";

/// The text with every character that is not shown as itself written out: `\n`, `\u{1b}`. A second time changes nothing.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.find(is_hazardous) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().fold(String::new(), |mut shown, character| {
            if is_hazardous(character) {
                // Writing into a string can't fail.
                let _ = write!(shown, "{}", character.escape_default());
            } else {
                shown.push(character);
            }
            shown
        })),
    }
}

/// As [`printable`], and not longer than `bytes_max` bytes.
#[must_use]
pub fn printable_within(text: &str, bytes_max: usize) -> Cow<'_, str> {
    // Written out, a text only grows: what is cut here would be cut anyway, and need not be looked at.
    let begin = &text[..text.floor_char_boundary(bytes_max.saturating_add(1))];
    let shown = printable(begin);
    if begin.len() == text.len() && shown.len() <= bytes_max {
        return shown;
    }
    let keep = shown.floor_char_boundary(bytes_max.saturating_sub(CUT.len()));
    let mut cut = String::from(&shown[..keep]);
    cut.push_str(CUT);
    Cow::Owned(cut)
}

/// A JSON text without such characters: they occur in its strings alone, where they may be written out.
#[must_use]
pub fn printable_json(text: &str) -> Cow<'_, str> {
    // Between values line ends and tabs are no more than spaces; in strings there are none.
    let is_meant = |character: char| is_hazardous(character) && !matches!(character, '\n' | '\t');
    match text.find(is_meant) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().fold(String::new(), |mut shown, character| {
            if !is_meant(character) {
                shown.push(character);
                return shown;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                // As above.
                let _ = write!(shown, "\\u{unit:04x}");
            }
            shown
        })),
    }
}

/// Whether a character steers instead of being seen: control characters, line ends, marks of direction, and those
/// without a width.
fn is_hazardous(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_written_out() {
        let cases = [
            ("job", "job"),
            ("größe 名前 🦀 a\\b", "größe 名前 🦀 a\\b"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\u{0}"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("\u{202e}gnp.\u{2066}\u{2028}", "\\u{202e}gnp.\\u{2066}\\u{2028}"),
            ("a\u{200b}b\u{feff}\u{e0041}", "a\\u{200b}b\\u{feff}\\u{e0041}"),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(shown), shown, "once is enough");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(printable_within("größe", 7), "größe");
        for (bytes_max, shown) in [(6, "gr…"), (5, "gr…"), (4, "g…"), (3, "…"), (0, "…")]
        {
            assert_eq!(printable_within("größe", bytes_max), shown);
        }
        assert_eq!(printable_within("\x1b\x1b\x1b\x1b", 12), "\\u{1b}\\u{…");
        let long = "\x1b".repeat(4 << 20);
        assert!(printable_within(&long, 255).len() <= 255);
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\n\t\"name\": \"a\u{9b}b\u{e0041}\u{7f}\\n\"\n}";
        let shown = printable_json(text);
        assert_eq!(shown, "{\n\t\"name\": \"a\\u009bb\\udb40\\udc41\\u007f\\n\"\n}");
        assert_eq!(printable_json(&shown), shown);
    }
}
