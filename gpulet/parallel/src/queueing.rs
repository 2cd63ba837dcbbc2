//! Mean response times in closed form, with which simulations are compared (AlpaServe, OSDI 2023, section 3.4).

use crate::error::{ParallelError, positive};

/// Mean seconds from arrival to end in an M/D/1 queue: `D + λD² / (2(1 − λD))`.
pub fn single_s(rate: f64, service_s: f64) -> Result<f64, ParallelError> {
    pipeline_s(rate, service_s, service_s)
}

/// Mean seconds in a pipeline with Poisson arrivals whose slowest stage takes `stage_s` and whose stages together take
/// `latency_s`: only the slowest stage has a queue.
pub fn pipeline_s(rate: f64, latency_s: f64, stage_s: f64) -> Result<f64, ParallelError> {
    positive("rate", rate)?;
    positive("latency_s", latency_s)?;
    positive("stage_s", stage_s)?;
    let load = rate * stage_s;
    if load >= 1.0 {
        return Err(ParallelError::invalid("rate", format!("less than {:.3} a second", 1.0 / stage_s), rate));
    }
    Ok(latency_s + rate * stage_s * stage_s / (2.0 * (1.0 - load)))
}
