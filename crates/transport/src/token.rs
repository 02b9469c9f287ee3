//! The bearer token that every call to a manager or to an aggregator's metrics carries.
//!
//! Owns reading and creating the token's file and comparing tokens. Knows nothing of HTTP. It is in
//! this crate because daemons and the host library do not depend on each other and both need it.

mod identity;

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::rand::GetRandomFlags;

pub use identity::{Identity, PublicKey};

/// Fewest characters a token may have: 128 bits in hexadecimal.
pub const TOKEN_CHARS_MIN: usize = 32;

/// Most bytes a token's file may have.
pub const TOKEN_FILE_BYTES_MAX: u64 = 4096;

/// Tokens in one file: the one in use, and the one that it replaces.
const TOKENS_MAX: usize = 2;

const TOKEN_RANDOM_BYTES: usize = 32;

/// Permission bits that give anybody but the owner access to the file.
const OTHERS_MODE: u32 = 0o077;

const ROOT: u32 = 0;

/// A secret that client and server share.
///
/// Compared in constant time and never printed, so neither timing nor a log reveals it.
#[derive(Clone)]
pub struct Token(String);

/// Why a token's file can't be used. The operator is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file could not be opened or read.
    #[error("token file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody else can read or change the file.
    #[error("token file {} has mode {mode:04o}; only its owner may have access (chmod 600)", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to somebody else.
    #[error("token file {} belongs to user {owner}, this process runs as user {ours}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The user that owns it.
        owner: u32,
        /// The user that runs this process.
        ours: u32,
    },
    /// The path names a directory, a device or a pipe.
    #[error("token file {} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file holds more than a token.
    #[error("token file {} has more than {TOKEN_FILE_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The token could be guessed.
    #[error("token file {} holds {got_chars} characters, at least {TOKEN_CHARS_MIN} are needed", path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
        /// What it holds, surrounding white space not counted.
        got_chars: usize,
    },
    /// The file holds more tokens than are valid while one is replaced.
    #[error("token file {} holds {got} tokens; one is allowed, and two while one is replaced", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// How many it holds.
        got: usize,
    },
    /// The token could not travel in an HTTP header.
    #[error("token file {} holds characters other than printable ASCII", path.display())]
    BadCharacter {
        /// The file.
        path: PathBuf,
    },
}

/// Why a token file was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateTokenError {
    /// There is a file of that name; it is left alone.
    #[error("token file {} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be made or written.
    #[error("token file {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The kernel gave no random bytes.
    #[error("no random bytes for a token: {0}")]
    NoEntropy(io::Error),
}

impl Token {
    /// Reads the token from `path`, without the white space around it: the first one, if there are two.
    ///
    /// # Errors
    /// If the file can't be read, is open to others, belongs to another user, or holds no valid
    /// token.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        Ok(Self::load_all(path)?.swap_remove(0))
    }

    /// Reads the token from `path`, or two, one a line, while one is replaced: the new one comes first. All are valid
    /// for who checks tokens; who shows one shows the first.
    ///
    /// # Errors
    /// As [`Token::load`].
    pub fn load_all(path: &Path) -> Result<Vec<Self>, TokenError> {
        let unreadable = |source| TokenError::Unreadable { path: path.to_owned(), source };
        // NONBLOCK, because opening a pipe without a writer would block for ever. The checks below
        // use the open file, so that nobody can swap it in between.
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .map_err(unreadable)?;
        check_private(path, &file)?;
        let mut text = Vec::new();
        Read::by_ref(&mut file)
            .take(TOKEN_FILE_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > TOKEN_FILE_BYTES_MAX {
            return Err(TokenError::TooLong { path: path.to_owned() });
        }
        Self::parse_all(path, &text)
    }

    /// A token that another process has read from its file and handed on.
    ///
    /// # Errors
    /// If it is no valid token.
    pub fn handed_on(text: &str) -> Result<Self, TokenError> {
        Ok(Self::parse_all(Path::new("of rank 0"), text.as_bytes())?.swap_remove(0))
    }

    /// Makes a file at `path`, mode 0600, with a new random token in it.
    ///
    /// # Errors
    /// If there is a file already, or the new one can't be written.
    pub fn create(path: &Path) -> Result<Self, CreateTokenError> {
        let unwritable = |source| CreateTokenError::Unwritable { path: path.to_owned(), source };
        let token = Self::random().map_err(CreateTokenError::NoEntropy)?;
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(CreateTokenError::Exists { path: path.to_owned() });
            }
            Err(source) => return Err(unwritable(source)),
        };
        writeln!(file, "{}", token.0).map_err(unwritable)?;
        Ok(token)
    }

    /// Whether `candidate` is this token. The time taken depends on the lengths only.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        let ours = self.0.as_bytes();
        if ours.len() != candidate.len() {
            return false;
        }
        let differences = ours.iter().zip(candidate).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
        // The compiler must not turn the fold into a loop that leaves at the first difference.
        std::hint::black_box(differences) == 0
    }

    /// The characters, for the header that carries them.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// At least one token.
    fn parse_all(path: &Path, text: &[u8]) -> Result<Vec<Self>, TokenError> {
        let lines = text.trim_ascii().split(|byte| *byte == b'\n');
        let tokens = lines.map(|line| Self::parse(path, line)).collect::<Result<Vec<_>, _>>()?;
        match tokens.len() {
            got if got > TOKENS_MAX => Err(TokenError::TooMany { path: path.to_owned(), got }),
            _ => Ok(tokens),
        }
    }

    fn parse(path: &Path, line: &[u8]) -> Result<Self, TokenError> {
        let token = line.trim_ascii();
        if token.len() < TOKEN_CHARS_MIN {
            return Err(TokenError::TooShort { path: path.to_owned(), got_chars: token.len() });
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::BadCharacter { path: path.to_owned() });
        }
        let token = std::str::from_utf8(token).expect("printable ASCII is UTF-8");
        Ok(Self(token.to_owned()))
    }

    fn random() -> io::Result<Self> {
        let bytes: [u8; TOKEN_RANDOM_BYTES] = random_bytes()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// `N` unguessable bytes from the kernel.
///
/// # Errors
/// If the kernel has none to give.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(got_bytes) => filled += got_bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

fn check_private(path: &Path, file: &File) -> Result<(), TokenError> {
    let facts = file
        .metadata()
        .map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
    if !facts.is_file() {
        return Err(TokenError::NotAFile { path: path.to_owned() });
    }
    // What systemd gives a service (LoadCredential=) may belong to root, with an access list that admits the
    // service alone. The mode shows that list as rights of the group.
    let credentials = env::var_os("CREDENTIALS_DIRECTORY");
    if facts.uid() == ROOT && is_credential(path, credentials.as_deref()) {
        return Ok(());
    }
    let mode = facts.mode() & 0o7777;
    if mode & OTHERS_MODE != 0 {
        return Err(TokenError::Exposed { path: path.to_owned(), mode });
    }
    let ours = rustix::process::geteuid().as_raw();
    if facts.uid() != ours {
        return Err(TokenError::Foreign { path: path.to_owned(), owner: facts.uid(), ours });
    }
    Ok(())
}

/// Whether a file is one of those that systemd keeps for this service, in `folder`.
fn is_credential(path: &Path, folder: Option<&OsStr>) -> bool {
    folder.is_some_and(|folder| !folder.is_empty() && path.parent() == Some(Path::new(folder)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    const GOOD: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn created_token_loads_and_matches_itself_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = Token::create(&path).unwrap();
        let read = Token::load(&path).unwrap();
        assert!(made.matches(read.reveal().as_bytes()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

        let mut wrong = read.reveal().as_bytes().to_vec();
        for at in 0..wrong.len() {
            wrong[at] ^= 1;
            assert!(!made.matches(&wrong), "difference at {at} went unseen");
            wrong[at] ^= 1;
        }
        assert!(!made.matches(&wrong[1..]));
        assert!(!made.matches(b""));
        assert!(matches!(Token::create(&path), Err(CreateTokenError::Exists { .. })));
        assert_eq!(Token::load(&path).unwrap().reveal(), read.reveal(), "file was left alone");
    }

    #[test]
    fn white_space_around_the_token_does_not_count() {
        let (_folder, path) = write(&format!("  {GOOD}\r\n\n"), 0o400);
        assert_eq!(Token::load(&path).unwrap().reveal(), GOOD);
    }

    #[test]
    fn two_tokens_are_read_while_one_is_replaced() {
        let new = GOOD.replace('0', "f");
        let reveal = |tokens: Vec<Token>| {
            tokens.iter().map(|token| token.reveal().to_owned()).collect::<Vec<_>>()
        };
        let (_folder, path) = write(&format!("{new}\n{GOOD}\n"), 0o600);
        assert_eq!(Token::load(&path).unwrap().reveal(), new, "the first is shown to others");
        assert_eq!(reveal(Token::load_all(&path).unwrap()), [new.as_str(), GOOD]);
        let (_folder, path) = write(GOOD, 0o600);
        assert_eq!(reveal(Token::load_all(&path).unwrap()), [GOOD]);
        let (_folder, path) = write(&format!("{new}\n{GOOD}\n{GOOD}"), 0o600);
        assert!(matches!(Token::load_all(&path), Err(TokenError::TooMany { got: 3, .. })));
        let (_folder, path) = write(&format!("{GOOD}\n\n{GOOD}"), 0o600);
        assert!(matches!(Token::load(&path), Err(TokenError::TooShort { got_chars: 0, .. })));
    }

    #[test]
    fn files_open_to_others_are_refused() {
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601, 0o777] {
            let (_folder, path) = write(GOOD, mode);
            let error = Token::load(&path).unwrap_err();
            assert!(matches!(error, TokenError::Exposed { mode: seen, .. } if seen == mode));
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let (_folder, path) = write(GOOD, 0o600);
        if std::os::unix::fs::chown(&path, Some(12345), None).is_err() {
            return; // Only a privileged user can give a file away, and only they need this check.
        }
        assert!(matches!(Token::load(&path), Err(TokenError::Foreign { owner: 12345, .. })));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let (_folder, path) = write(&GOOD[1..], 0o600);
        assert!(matches!(Token::load(&path), Err(TokenError::TooShort { got_chars: 31, .. })));
        let (_folder, path) = write(&format!("{GOOD} {GOOD}"), 0o600);
        assert!(matches!(Token::load(&path), Err(TokenError::BadCharacter { .. })));
        let (_folder, path) = write(&GOOD.repeat(200), 0o600);
        assert!(matches!(Token::load(&path), Err(TokenError::TooLong { .. })));
        let gone = path.with_extension("gone");
        assert!(matches!(Token::load(&gone), Err(TokenError::Unreadable { .. })));
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(Token::load(folder.path()), Err(TokenError::NotAFile { .. })));
    }

    #[test]
    fn debug_does_not_leak() {
        let (_folder, path) = write(GOOD, 0o600);
        assert_eq!(format!("{:?}", Token::load(&path).unwrap()), "Token(..)");
    }

    #[test]
    fn credentials_are_the_files_of_one_folder() {
        let folder = Some(OsStr::new("/run/credentials/tributary-node.service"));
        let inside = Path::new("/run/credentials/tributary-node.service/token");
        assert!(is_credential(inside, folder));
        assert!(!is_credential(&inside.join("deeper"), folder));
        assert!(!is_credential(Path::new("/etc/tributary/token"), folder));
        assert!(!is_credential(inside, None));
        assert!(!is_credential(Path::new("token"), Some(OsStr::new(""))));
    }
}
