//! Explains why planning failed.

use gpulet_core::placement::{Infeasible, Remedy, Shortage};

use super::format;

/// Says why planning failed, and which key to change.
pub fn infeasible_words(infeasible: &Infeasible) -> String {
    let Infeasible { workload, shortage, remedy } = infeasible;
    let problem = match shortage {
        Shortage::Time { fastest_us, slo_us } => format!(
            "workloads.{workload}.slo: {} cannot be met, two batches of one row on the largest share take {}",
            format::time(*slo_us),
            format::time(*fastest_us)
        ),
        Shortage::Memory { needed, has } => format!(
            "workloads.{workload}.model: needs {} of memory, the largest device has {}",
            format::bytes(*needed),
            format::bytes(*has)
        ),
        Shortage::FaultDomains { needs, has } => format!(
            "workloads.{workload}.replicas_min: must be in {needs} fault domains, its devices are in {has}"
        ),
        Shortage::Devices { has } => {
            format!("workloads.{workload}: does not fit on {}", format::counted(*has, "device"))
        }
    };
    let expected = match remedy {
        Remedy::Slo { slo_us } => format!("expected at least {}", format::time(*slo_us)),
        Remedy::Memory { bytes } => format!("expected a device with at least {}", format::bytes(*bytes)),
        Remedy::FaultDomains { needs } => format!("expected {needs} fault domains, or fewer replicas"),
        Remedy::Devices { device_type, more } => format!("expected {more} more of `{device_type}`"),
        Remedy::Unknown => "expected a lower rate, a longer objective, or more devices".to_owned(),
    };
    format!("{problem}; {expected}")
}
