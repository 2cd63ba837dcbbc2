//! What `GET /v2/explain` asks for.

use crate::reason::{Reason, Refusal};

use super::{Entry, Outcome};

/// Requests listed if the query sets no limit.
const LIMIT: usize = 20;
/// Most requests listed at once.
const LIMIT_MAX: usize = 1_000;

/// Which requests to list. Conditions that are not set hold for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Name of the model.
    pub model: Option<String>,
    /// Name of the tenant, as metrics have it.
    pub tenant: Option<String>,
    /// How they ended.
    pub outcome: Option<Outcome>,
    /// Why they were not answered.
    pub reason: Option<Reason>,
    /// How many at most, 1 to 1000.
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self { model: None, tenant: None, outcome: None, reason: None, limit: LIMIT }
    }
}

impl Query {
    /// Reads the query of a URL.
    ///
    /// # Errors
    /// A refusal that names the key and what it takes.
    pub fn parse(query: &str) -> Result<Self, Refusal> {
        let mut read = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let wrong = |expected: &str| {
                let shown: String = value.chars().take(64).collect();
                Refusal::new(Reason::Malformed, format!("{key}: expected {expected}, got `{shown}`"))
            };
            match key.as_ref() {
                "model" => read.model = Some(value.into_owned()),
                "tenant" => read.tenant = Some(value.into_owned()),
                "outcome" => {
                    let outcome = serde_json::from_value(value.as_ref().into());
                    let expected = "in_time, late, refused, failed or cancelled";
                    read.outcome = Some(outcome.map_err(|_| wrong(expected))?);
                }
                "reason" => {
                    let known = Reason::ALL.into_iter().find(|reason| reason.label() == value);
                    read.reason = Some(known.ok_or_else(|| wrong("a reason such as deadline_unmeetable"))?);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    read.limit = limit.ok_or_else(|| wrong("a number from 1 to 1000"))?;
                }
                _ => {
                    let shown: String = key.chars().take(64).collect();
                    let message = format!(
                        "unknown parameter `{shown}`: expected model, tenant, outcome, reason or limit"
                    );
                    return Err(Refusal::new(Reason::Malformed, message));
                }
            }
        }
        Ok(read)
    }

    pub(super) fn matches(&self, entry: &Entry, tenant: &str) -> bool {
        self.model.as_deref().is_none_or(|model| *entry.model == *model)
            && self.tenant.as_deref().is_none_or(|wanted| wanted == tenant)
            && self.outcome.is_none_or(|outcome| entry.outcome == outcome)
            && self.reason.is_none_or(|reason| entry.reason == Some(reason))
    }
}
