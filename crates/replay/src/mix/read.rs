//! Reading a mix.

use tributary_sim::input::{self, InputError};

use super::file::Mix;
use super::limits;

/// Reads a mix file.
///
/// # Errors
/// [`InputError`], one line that names key, value and what is allowed.
pub fn read(text: &str) -> Result<Mix, InputError> {
    let mix: Mix = input::value(input::table(text)?)?;
    limits::check(&mix)?;
    Ok(mix)
}
