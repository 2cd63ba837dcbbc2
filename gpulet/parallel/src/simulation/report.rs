//! Figures of a run.

use serde::Serialize;

use super::{Outcome, Request};

/// Which requests a report counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Seconds at the start and at the end of the arrivals that are left out (10 in the authors' simulator).
    pub edge_s: f64,
}

impl Window {
    /// All requests.
    pub const ALL: Self = Self { edge_s: 0.0 };
    /// As in the authors' results: without the first and the last 10 s.
    pub const PUBLISHED: Self = Self { edge_s: 10.0 };
}

/// Figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Requests that are counted.
    pub requests: usize,
    /// Share of them that ended within their objective, from 0 to 1. 1 without requests.
    pub attainment: f64,
    /// Mean seconds from arrival to end of the requests that were not rejected. 0 if all were.
    pub mean_s: f64,
    /// 99th percentile of these seconds. 0 if all were rejected.
    pub p99_s: f64,
}

impl Outcome {
    /// Figures of the requests within the window. `requests` are those of the run.
    pub fn report(&self, requests: &[Request], objectives_s: &[f64], window: Window) -> Report {
        let at = |request: Option<&Request>| request.map_or(0.0, |request| request.at_s);
        let (first, last) = (at(requests.first()) + window.edge_s, at(requests.last()) - window.edge_s);
        let counted =
            requests.iter().zip(&self.ends_s).filter(|(request, _)| (first..=last).contains(&request.at_s));
        let (mut count, mut served) = (0_usize, 0_usize);
        let mut latencies = Vec::new();
        for (request, end) in counted {
            count += 1;
            let Some(end) = end else { continue };
            let latency = end - request.at_s;
            latencies.push(latency);
            served += usize::from(latency <= objectives_s.get(request.model).copied().unwrap_or(0.0));
        }
        latencies.sort_by(f64::total_cmp);
        let share =
            |part: f64, whole: usize, empty: f64| if whole == 0 { empty } else { part / whole as f64 };
        let p99 = latencies.len().saturating_mul(99) / 100;
        Report {
            requests: count,
            attainment: share(served as f64, count, 1.0),
            mean_s: share(latencies.iter().sum(), latencies.len(), 0.0),
            p99_s: latencies.get(p99.min(latencies.len().saturating_sub(1))).copied().unwrap_or(0.0),
        }
    }
}
