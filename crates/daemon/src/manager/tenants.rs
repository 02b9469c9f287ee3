//! The file that names tenants, their tokens and limits.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tributary_manager::TenantLimits;
use tributary_transport::token::{Token, TokenError};

use crate::tokens::{Tokens, is_same};

/// Longest file of tenants: thousands of them.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Longest name of a tenant, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Somebody who may have jobs beside the operator.
#[derive(Debug)]
pub struct Tenant {
    /// What it is called in status, log and refusals.
    pub name: String,
    /// What its calls carry: one of these.
    pub tokens: Vec<Token>,
    /// How much of the fabric it may hold.
    pub limits: TenantLimits,
}

/// Why a file of tenants can't be used. The operator is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TenantsError {
    /// The file could not be read.
    #[error("tenants file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is not TOML, or has keys that nobody knows.
    #[error("tenants file {}: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A name that could be mistaken.
    #[error(
        "tenants file {}: the name `{name}` is not 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`",
        path.display()
    )]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// A tenant's token can't be used.
    #[error("tenants file {}, tenant `{name}`: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The tenant.
        name: String,
        /// Why.
        source: TokenError,
    },
    /// Two have one token, so that nobody could tell who calls.
    #[error("tenants file {}: {first} and tenant `{second}` have the same token", path.display())]
    SameToken {
        /// The file.
        path: PathBuf,
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
}

/// A tenant as the file has it. A limit that is left out is none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The file of its token, or of two; a relative path counts from the file of tenants.
    token_file: PathBuf,
    jobs: Option<u32>,
    groups: Option<u32>,
    osos: Option<u32>,
    streams: Option<u32>,
}

/// Reads the tenants in `path`, beside those who have `tokens`.
///
/// # Errors
/// If the file or a token's file can't be used, or two have the same token.
pub fn load_tenants(path: &Path, tokens: &Tokens) -> Result<Vec<Tenant>, TenantsError> {
    let owned = || path.to_owned();
    let text = read(path).map_err(|source| TenantsError::Unreadable { path: owned(), source })?;
    let entries: BTreeMap<String, Entry> = toml::from_str(&text)
        .map_err(|source| TenantsError::Malformed { path: owned(), source: Box::new(source) })?;
    let mut tenants = Vec::<Tenant>::new();
    for (name, entry) in entries {
        if !is_name(&name) {
            return Err(TenantsError::Name { path: owned(), name });
        }
        let own = Token::load_all(&token_file(path, &entry.token_file))
            .map_err(|source| TenantsError::Token { path: owned(), name: name.clone(), source })?;
        if let Some(first) = own.iter().find_map(|token| holder_of(token, tokens, &tenants)) {
            return Err(TenantsError::SameToken { path: owned(), first, second: name });
        }
        let Entry { jobs, groups, osos, streams, .. } = entry;
        tenants.push(Tenant {
            name,
            tokens: own,
            limits: TenantLimits { jobs, groups, osos, streams },
        });
    }
    Ok(tenants)
}

/// What a file holds, of which there may be no end.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// The file of a tenant's token, which counts from the file of tenants. systemd hands the files of a folder to a service
/// in one folder, each with a name in front (`LoadCredential=tenants:FOLDER` makes `tenants_FILE`); the token then has
/// what the file of tenants has in front of its own.
fn token_file(tenants: &Path, token_file: &Path) -> PathBuf {
    let beside = tenants.with_file_name(token_file);
    let front = tenants.file_name().and_then(|name| name.to_str()?.rsplit_once('_'));
    match (front, token_file.to_str()) {
        (Some((front, _)), Some(name)) if !beside.exists() && !name.contains('/') => {
            tenants.with_file_name(format!("{front}_{name}"))
        }
        _ => beside,
    }
}

/// The holder of a token that is given again.
fn holder_of(token: &Token, tokens: &Tokens, tenants: &[Tenant]) -> Option<String> {
    let has = |tenant: &&Tenant| tenant.tokens.iter().any(|known| is_same(known, token));
    let twin = tenants.iter().find(has).map(|tenant| format!("tenant `{}`", tenant.name));
    twin.or_else(|| tokens.holder_of(token).map(str::to_owned))
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with token files `operator`, `a` and `b`, and a file of tenants.
    fn load(text: &str) -> Result<Vec<Tenant>, String> {
        let folder = tempfile::tempdir().unwrap();
        let token = |name: &str| Token::create(&folder.path().join(name)).unwrap();
        let [operator, ..] = ["operator", "a", "b"].map(token);
        let path = folder.path().join("tenants.toml");
        fs::write(&path, text).unwrap();
        let told = |error: TenantsError| {
            error.to_string().replace(folder.path().to_str().unwrap(), "FOLDER")
        };
        load_tenants(&path, &operator.into()).map_err(told)
    }

    #[test]
    fn names_tokens_and_limits_are_read() {
        let text =
            "[physics]\ntoken_file = \"a\"\njobs = 2\nosos = 64\n\n[chem-2]\ntoken_file = \"b\"\n";
        let [chemistry, physics] = &load(text).unwrap()[..] else { panic!("two tenants") };
        assert_eq!((chemistry.name.as_str(), physics.name.as_str()), ("chem-2", "physics"));
        assert_eq!(chemistry.limits, TenantLimits::default());
        let limits = TenantLimits { jobs: Some(2), osos: Some(64), ..TenantLimits::default() };
        assert_eq!(physics.limits, limits);
        assert!(load("").unwrap().is_empty());
    }

    #[test]
    fn a_folder_that_systemd_hands_over_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let token = |name: &str| Token::create(&folder.path().join(name)).unwrap();
        let [operator, _, other] = ["token", "tenants_physics.token", "elsewhere"].map(token);
        let path = folder.path().join("tenants_tenants.toml");
        let elsewhere = folder.path().join("elsewhere");
        let text = format!(
            "[physics]\ntoken_file = \"physics.token\"\n[chemistry]\ntoken_file = {elsewhere:?}\n"
        );
        fs::write(&path, text).unwrap();
        let [chemistry, physics] = &load_tenants(&path, &operator.into()).unwrap()[..] else {
            panic!("two tenants")
        };
        assert_eq!(physics.name, "physics");
        assert!(is_same(&chemistry.tokens[0], &other));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        let cases = [
            ("[a]\ntoken_file = \"a\"\noso = 3", "unknown field `oso`"),
            ("[a]\njobs = 3", "missing field `token_file`"),
            ("[a]\ntoken_file = \"a\"\njobs = -1", "jobs"),
            ("[\"a b\"]\ntoken_file = \"a\"", "the name `a b` is not"),
            ("[a]\ntoken_file = \"c\"", "tenant `a`: token file FOLDER/c: No such file"),
            ("[x]\ntoken_file = \"a\"\n[y]\ntoken_file = \"a\"", "tenant `x` and tenant `y` have"),
            ("[x]\ntoken_file = \"operator\"", "the operator and tenant `x` have the same token"),
            (&"#".repeat(5 << 20), "it has more than 4194304 bytes"),
            ("nonsense", "tenants file FOLDER/tenants.toml: TOML parse error at line 1"),
        ];
        for (text, part) in cases {
            let error = load(text).unwrap_err();
            let begin = &text[..text.len().min(80)];
            assert!(error.contains(part), "{begin:?} gave {error:?}");
        }
    }
}
