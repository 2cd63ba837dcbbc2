//! What an operator does who knows the peak: capacity for it, at all times. The most that any scaler should cost.

use super::{Reason, Scaler, ScalingOptions, Seen, Service, Recommendation};
use crate::time::Micros;

#[derive(Debug)]
pub(super) struct Fixed {
    peaks: Vec<f64>,
}

impl Fixed {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        Self { peaks: services.iter().map(|service| service.peak_rate).collect() }
    }
}

impl Scaler for Fixed {
    fn recommend(&mut self, _now_us: Micros, _seen: &[Seen]) -> Vec<Recommendation> {
        self.peaks.iter().map(|peak| Recommendation { rate: *peak, reason: Reason::Peak }).collect()
    }
}
