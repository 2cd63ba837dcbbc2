//! Figures from what the clients and the GPU have seen.

use super::client::Client;
use crate::figures::{Figures, percentile};

/// Shares of a run that the GPU measured.
pub(super) struct Shares {
    pub(super) busy: f64,
    pub(super) sms: f64,
    pub(super) online_sms: f64,
}

pub(super) fn figures(warm_up_ns: u64, clients: &[Client], now: u64, shares: &Shares) -> Figures {
    let counted_ns = now.saturating_sub(warm_up_ns).max(1) as f64;
    let rate = |client: &Client| {
        let ended = client.served.iter().filter(|(_, end)| *end >= warm_up_ns);
        ended.count() as f64 / counted_ns * 1e9
    };
    let mut latencies: Vec<u64> = clients
        .iter()
        .take(1)
        .flat_map(|client| &client.served)
        .filter(|(arrived, _)| *arrived >= warm_up_ns)
        .map(|(arrived, end)| end - arrived)
        .collect();
    latencies.sort_unstable();
    let ms = |share| percentile(&latencies, share) as f64 / 1e6;
    Figures {
        requests: latencies.len(),
        unfinished: clients.first().map_or(0, Client::open),
        p50_ms: ms(0.5),
        p95_ms: ms(0.95),
        p99_ms: ms(0.99),
        online_per_second: clients.first().map_or(0.0, rate),
        best_effort_per_second: clients.iter().skip(1).map(rate).collect(),
        busy_share: shares.busy,
        sm_share: shares.sms,
        online_sm_share: shares.online_sms,
        kernels_issued: clients.iter().map(|client| client.kernels_issued).collect(),
        kernels_ended: clients.iter().map(|client| client.kernels_ended).collect(),
    }
}
