//! MuxFlow's dynamic SM allocation (arXiv 2303.13803, section 4): the complement of what the online model uses.

use super::queues::Queues;
use super::{Effect, Event, ONLINE, Policy, Setting};

/// Time over which the online model's use is measured, in nanoseconds (ours).
const INTERVAL_NS: u64 = 1_000_000_000;
/// Share of the SMs that neither side gets (ours; the paper's constant is not known to us).
const MARGIN: f64 = 0.1;
/// Share of the SMs that best-effort work always gets (ours).
const SHARE_MIN: f64 = 0.1;

/// SMs for best-effort work next to an online model that uses a share of all SMs.
#[must_use]
pub fn sms_left(used: f64, sms: u32) -> u32 {
    ((1.0 - used - MARGIN).clamp(SHARE_MIN, 1.0) * f64::from(sms)) as u32
}

/// Every kernel starts at once, as under MPS, but the streams of best effort share the SMs that the online model did not use in the last
/// interval, less a margin. The online stream has priority, which is ours: without it, its p99 is further from the paper's. The
/// paper's guards for load, clock, temperature, memory and errors need hardware and are left out.
#[derive(Debug)]
pub(super) struct MuxFlowShare {
    queues: Queues,
    sms: f64,
    clients: u32,
    interval: u64,
    used_ns: f64,
}

impl MuxFlowShare {
    pub(super) fn new(setting: &Setting) -> Self {
        Self {
            queues: Queues::new(setting.clients),
            sms: f64::from(setting.sms),
            clients: (setting.clients as u32).saturating_sub(1).max(1),
            interval: 0,
            used_ns: 0.0,
        }
    }

    fn limit(&mut self, intervals: u64, effects: &mut Vec<Effect>) {
        let used = self.used_ns / (intervals * INTERVAL_NS) as f64 / self.sms;
        let sms = (sms_left(used, self.sms as u32) / self.clients).max(1);
        effects.extend(self.queues.best_effort().map(|client| Effect::LimitSms { client, sms }));
        self.used_ns = 0.0;
    }
}

impl Policy for MuxFlowShare {
    fn handle(&mut self, now: u64, event: Event, effects: &mut Vec<Effect>) {
        let intervals = (now - self.interval) / INTERVAL_NS;
        if intervals > 0 {
            self.limit(intervals, effects);
            self.interval += intervals * INTERVAL_NS;
        }
        match event {
            Event::Queued { client, kernel, last } => {
                self.queues.push(client, kernel, last);
                self.queues.launch(client, effects);
            }
            Event::Ended { client } => {
                if client == ONLINE {
                    let ended = self.queues.running(ONLINE);
                    self.used_ns += ended.map_or(0.0, |kernel| {
                        kernel.duration_ns as f64 * f64::from(kernel.sms).min(self.sms)
                    });
                }
                self.queues.ended(client);
            }
            Event::Evicted { .. } | Event::Woken => {}
        }
    }

    fn online_priority(&self) -> bool {
        true
    }
}
