//! Seeded requests of many models.

use workload::GammaArrivals;

use crate::error::{ParallelError, not_negative, positive, within};
use crate::simulation::Request;

#[derive(serde::Deserialize)]
struct Row {
    at_s: f64,
    model: usize,
}

/// Requests of all models together at most.
pub const REQUESTS_MAX: f64 = 20_000_000.0;

/// How the models share the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shares {
    /// Model `i`, counted from 1, gets a share proportional to `i` to the power of `-exponent`. 0: equal shares.
    PowerLaw {
        /// The exponent, at least 0 (0.5 in AlpaServe's experiments).
        exponent: f64,
    },
}

/// Rates of models in requests a second that sum up to `total`.
pub fn rates(total: f64, models: usize, shares: Shares) -> Result<Vec<f64>, ParallelError> {
    positive("rate", total)?;
    within("models", models, 1, 10_000)?;
    let Shares::PowerLaw { exponent } = shares;
    not_negative("exponent", exponent)?;
    let weights: Vec<f64> = (1..=models).map(|model| libm::pow(model as f64, -exponent)).collect();
    let sum: f64 = weights.iter().sum();
    Ok(weights.into_iter().map(|weight| total * weight / sum).collect())
}

/// Gamma arrivals of all models, in order of time. `cv` is the coefficient of variation of the gaps of each model.
pub fn requests(rates: &[f64], cv: f64, duration_s: f64, seed: u64) -> Result<Vec<Request>, ParallelError> {
    positive("duration", duration_s)?;
    let expected = rates.iter().sum::<f64>() * duration_s;
    if expected > REQUESTS_MAX {
        return Err(ParallelError::invalid(
            "duration",
            format!("at most {REQUESTS_MAX} requests in it"),
            expected,
        ));
    }
    let mut requests = Vec::new();
    for (model, rate) in rates.iter().enumerate() {
        let duration_ns = (duration_s * 1e9) as u64;
        let arrivals = GammaArrivals::new(*rate, cv, seed, &format!("model-{model}"), duration_ns);
        let arrivals = arrivals
            .map_err(|error| ParallelError::invalid("cv", "rates and a CV that are possible", error))?;
        requests.extend(arrivals.map(|at| Request { at_s: at as f64 / 1e9, model }));
    }
    requests.sort_by(|one, other| one.at_s.total_cmp(&other.at_s).then(one.model.cmp(&other.model)));
    Ok(requests)
}

/// Reads requests from a table with the columns `at_s,model`, with models below `models`, in order of time.
pub fn parse_requests(text: &str, models: usize) -> Result<Vec<Request>, ParallelError> {
    let mut requests: Vec<Request> = Vec::new();
    for row in csv::Reader::from_reader(text.as_bytes()).deserialize() {
        let row: Row = row.map_err(|error| {
            ParallelError::invalid("requests", "a table with the columns at_s,model", error)
        })?;
        let field = |column: &str| format!("requests.{}.{column}", requests.len());
        not_negative(field("at_s"), row.at_s)?;
        within(&field("model"), row.model, 0, models.saturating_sub(1))?;
        if requests.last().is_some_and(|last| last.at_s > row.at_s) {
            return Err(ParallelError::invalid(field("at_s"), "times in ascending order", row.at_s));
        }
        requests.push(Request { at_s: row.at_s, model: row.model });
    }
    Ok(requests)
}
