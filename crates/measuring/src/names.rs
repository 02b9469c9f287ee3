//! Takes out of texts what names a host or a person: names, addresses and paths.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What stands where something was.
const REMOVED: &str = "[removed]";

/// What must not be passed on.
pub struct Names(Vec<String>);

impl Names {
    /// Names, whole and up to their first dot.
    #[must_use]
    pub fn new(whole: Vec<String>) -> Self {
        let first = |name: &String| name.split('.').next().unwrap_or_default().to_owned();
        let short: Vec<String> = whole.iter().map(first).collect();
        let names = whole.into_iter().chain(short).filter(|name| !name.is_empty());
        Self(names.map(|name| name.to_lowercase()).collect())
    }

    /// The text without them, word by word.
    #[must_use]
    pub fn without(&self, text: &str) -> String {
        let words = text.split_whitespace();
        let kept = words.map(|word| if self.names(word) { REMOVED } else { word });
        kept.collect::<Vec<_>>().join(" ")
    }

    fn names(&self, word: &str) -> bool {
        if word.contains(['/', '@', '\\', '~']) {
            return true;
        }
        let edges = |edge: char| !edge.is_ascii_alphanumeric() && edge != ':';
        let bare = word.trim_matches(edges).trim_end_matches(':');
        if bare.parse::<IpAddr>().is_ok()
            || word.trim_matches([',', ';', '.', '(', ')']).parse::<SocketAddr>().is_ok()
        {
            return true;
        }
        let mut numbers = word.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
        if numbers.any(|number| number.trim_matches('.').parse::<Ipv4Addr>().is_ok()) {
            return true;
        }
        let separates = |letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter);
        let mut parts = word.split(separates).map(|part| part.trim_matches('.').to_lowercase());
        parts.any(|part| self.0.contains(&part))
    }
}

/// The name and the version of an MPI, of what it says about itself: what follows may name who built it, and where.
#[must_use]
pub fn library(says: &str) -> String {
    let words = says.split_whitespace().take_while(|word| !word.contains(['/', '@']));
    words.take(8).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_paths_go_and_the_rest_stays() {
        let names = Names::new(vec!["login1.cluster.example".into(), "h0".into(), "anna".into()]);
        for (text, without) in [
            ("host h0 at 10.77.2.2, port 7:", "host [removed] at [removed] port 7:"),
            ("h0@10.1.1.1:80 Login1 (login1.cluster.example)", "[removed] [removed] [removed]"),
            ("anna's file /home/anna/x", "[removed] file [removed]"),
            ("fe80::1 [fe80::1]:80 10.0.0.1:7470", "[removed] [removed] [removed]"),
            ("spans 4 hosts: user-defined operator", "spans 4 hosts: user-defined operator"),
            ("at=10.1.2.3:80; (10.1.2.3)", "[removed] [removed]"),
            ("longer than 65536 bytes", "longer than 65536 bytes"),
        ] {
            assert_eq!(names.without(text), without);
        }
    }

    #[test]
    fn an_mpi_is_named_by_its_version() {
        assert_eq!(library("MPICH Version:      4.2.0"), "MPICH Version: 4.2.0");
        assert_eq!(library("Open MPI v5.0.8 anna@login1 x"), "Open MPI v5.0.8");
    }
}
