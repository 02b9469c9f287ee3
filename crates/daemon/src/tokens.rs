//! The tokens of the operator, and of those who may look at everything and change nothing.

use tributary_transport::token::Token;

/// Tokens that a daemon knows besides its tenants'. Each list has two while one is replaced.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The operator's, at least one. Daemons present the first.
    pub operator: Vec<Token>,
    /// Of who may read status, metrics and the page; none if nobody may but the operator.
    pub readers: Vec<Token>,
}

/// One token: the operator's.
impl From<Token> for Tokens {
    fn from(operator: Token) -> Self {
        Self { operator: vec![operator], readers: Vec::new() }
    }
}

impl Tokens {
    /// What this daemon presents to others.
    ///
    /// # Panics
    /// If the operator has no token.
    #[must_use]
    pub fn own(&self) -> &Token {
        self.operator.first().expect("the operator has a token")
    }

    /// The holder that a token has already, as a refusal names it.
    #[must_use]
    pub fn holder_of(&self, token: &Token) -> Option<&'static str> {
        let has = |tokens: &[Token]| tokens.iter().any(|known| is_same(known, token));
        match () {
            () if has(&self.operator) => Some("the operator"),
            () if has(&self.readers) => Some("the readers' token file"),
            () => None,
        }
    }
}

/// Whether two tokens are one.
pub(crate) fn is_same(one: &Token, other: &Token) -> bool {
    one.matches(other.reveal().as_bytes())
}
