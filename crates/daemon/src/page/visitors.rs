//! Admission to the page: codes that are good once and soon, and the cookies that they are exchanged for.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tributary_transport::token::random_bytes;

/// How long a code is good: a person has to get it into a browser.
const CODE_LIFETIME: Duration = Duration::from_secs(120);

/// How long a cookie is good: a working day.
const COOKIE_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Most secrets of a kind that are good at once; a further one replaces the oldest.
const SECRETS_MAX: usize = 64;

/// The browsers that may read.
pub(crate) struct Visitors {
    /// Of this manager alone: browsers send cookies to all ports of a host.
    cookie_name: String,
    secrets: Mutex<Secrets>,
}

#[derive(Default)]
struct Secrets {
    codes: Lasting,
    cookies: Lasting,
}

impl Visitors {
    /// Nobody may read yet.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub(crate) fn new() -> io::Result<Self> {
        let cookie_name = format!("tributary-{}", &secret()?[..8]);
        Ok(Self { cookie_name, secrets: Mutex::default() })
    }

    /// Draws a code that lets one browser in.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub(crate) fn draw_code(&self) -> io::Result<String> {
        let code = secret()?;
        self.lock().codes.add(code.clone(), Instant::now() + CODE_LIFETIME);
        Ok(code)
    }

    /// Takes a code back. If it was good, returns a header that sets a cookie, which travels encrypted only
    /// unless the browser is `on_loopback`.
    pub(super) fn redeem(&self, code: &str, on_loopback: bool) -> Option<String> {
        let cookie = secret().ok()?;
        let now = Instant::now();
        let mut secrets = self.lock();
        if !secrets.codes.take(code, now) {
            return None;
        }
        secrets.cookies.add(cookie.clone(), now + COOKIE_LIFETIME);
        let (name, seconds) = (&self.cookie_name, COOKIE_LIFETIME.as_secs());
        let secure = if on_loopback { "" } else { "; Secure" };
        Some(format!(
            "{name}={cookie}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        ))
    }

    /// Whether a `Cookie` header has a cookie that is good.
    pub(super) fn knows(&self, cookies: &str) -> bool {
        let shown = cookies
            .split(';')
            .filter_map(|pair| pair.trim().split_once('='))
            .filter_map(|(name, value)| (name == self.cookie_name).then_some(value));
        let now = Instant::now();
        let secrets = self.lock();
        shown.into_iter().any(|value| secrets.cookies.has(value, now))
    }

    fn lock(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Secrets with an end, oldest first.
#[derive(Default)]
struct Lasting(VecDeque<(String, Instant)>);

impl Lasting {
    fn add(&mut self, secret: String, until: Instant) {
        if self.0.len() == SECRETS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((secret, until));
    }

    fn has(&self, secret: &str, now: Instant) -> bool {
        self.0.iter().any(|(known, until)| known == secret && now < *until)
    }

    /// Whether it was there and good; it is not there any more.
    fn take(&mut self, secret: &str, now: Instant) -> bool {
        let is_good = self.has(secret, now);
        self.0.retain(|(known, until)| known != secret && now < *until);
        is_good
    }
}

/// 256 random bits as text. They are compared as text, too: a caller that measures how long that takes learns nothing
/// that helps to guess so many.
fn secret() -> io::Result<String> {
    let bytes: [u8; 32] = random_bytes()?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Whether a `Host` header names this machine as seen by itself, where nothing is encrypted.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie_of(header: &str) -> &str {
        header.split(';').next().unwrap()
    }

    #[test]
    fn a_code_lets_one_browser_in() {
        let visitors = Visitors::new().unwrap();
        let code = visitors.draw_code().unwrap();
        assert!(visitors.redeem("", true).is_none());
        assert!(visitors.redeem(&code[1..], true).is_none());
        let header = visitors.redeem(&code, true).unwrap();
        assert!(visitors.redeem(&code, true).is_none(), "good once");

        let cookie = cookie_of(&header);
        assert!(visitors.knows(cookie));
        assert!(visitors.knows(&format!("other=1; {cookie}; tributary=2")));
        assert!(!visitors.knows("") && !visitors.knows(&cookie[..cookie.len() - 1]));
        assert!(!visitors.knows(cookie.split('=').next_back().unwrap()), "without its name");
        assert!(!Visitors::new().unwrap().knows(cookie), "of another manager");
    }

    #[test]
    fn secrets_end_and_are_few() {
        let start = Instant::now();
        let mut secrets = Lasting::default();
        for number in 0..=SECRETS_MAX {
            secrets.add(number.to_string(), start + CODE_LIFETIME);
        }
        assert!(!secrets.has("0", start) && secrets.has("1", start));
        assert!(!secrets.has("1", start + CODE_LIFETIME));
        assert!(!secrets.take("1", start + CODE_LIFETIME));
        assert!(secrets.0.is_empty(), "what has ended is forgotten");
    }

    #[test]
    fn cookies_travel_in_clear_on_loopback_only() {
        for host in ["127.0.0.1:7470", "localhost", "localhost:7470", "[::1]:7470", "127.1.2.3"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "10.0.0.1:7470", "manager.tributary", "localhost.evil.org", "[fe80::1]:1"]
        {
            assert!(!is_loopback(host), "{host}");
        }
        let visitors = Visitors::new().unwrap();
        let code = visitors.draw_code().unwrap();
        assert!(visitors.redeem(&code, false).unwrap().ends_with("; Secure"));
    }
}
