//! Tenants: those of `[tenants]`, or without this table those that models name.

use std::collections::BTreeMap;

use crate::document::Document;
use crate::names::check_name;
use crate::tenant_section::TenantSection;
use crate::workload::{Allowance, Quota, Tenant};
use units::Fault as WorkloadError;

/// The tenant of requests that name none.
const DEFAULT_TENANT: &str = "default";

/// Tenants that a workload may have at most.
const TENANTS_MAX: usize = 1_000;

/// Largest quota of device time, in seconds of lanes per second, and its burst in seconds.
const DEVICE_SECONDS_MAX: f64 = 1e6;

/// Largest quota of requests per second, and its burst.
const REQUESTS_MAX: f64 = 1e9;

/// Reads the tenants, `default` first.
pub(super) fn read(document: &Document) -> Result<Vec<Tenant>, WorkloadError> {
    let mut tenants = vec![tenant(DEFAULT_TENANT)];
    let mut add = |field: &str, name: &str, section: &TenantSection| {
        check_name(name).map_err(|problem| WorkloadError::new(field, problem))?;
        let weight = section.weight.unwrap_or(1.0);
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(WorkloadError::new(field, format!("expected a weight above 0, got {weight}")));
        }
        let quota = read_quota(field, section)?;
        let given = Tenant { weight, quota, ..tenant(name) };
        match tenants.iter_mut().find(|tenant| tenant.name == name) {
            Some(tenant) => *tenant = given,
            None => tenants.push(given),
        }
        Ok(())
    };
    if let Some(given) = &document.tenants {
        for (name, section) in given {
            add(&format!("tenants.{name}"), name, section)?;
        }
    } else {
        let named = document.models.iter().flat_map(|(model, section)| {
            section.tenants.keys().map(move |tenant| (tenant, format!("models.{model}.tenants.{tenant}")))
        });
        let named: BTreeMap<&String, String> = named.collect();
        for (name, field) in named {
            add(&field, name, &TenantSection::default())?;
        }
    }
    if tenants.len() > TENANTS_MAX {
        let problem = format!("expected at most {TENANTS_MAX}, got {}", tenants.len());
        return Err(WorkloadError::new("tenants", problem));
    }
    Ok(tenants)
}

fn tenant(name: &str) -> Tenant {
    Tenant { name: name.to_owned(), weight: 1.0, quota: Quota::default() }
}

fn read_quota(field: &str, section: &TenantSection) -> Result<Quota, WorkloadError> {
    let device_seconds = read_allowance(
        (format!("{field}.device_seconds_per_second"), section.device_seconds_per_second),
        (format!("{field}.device_seconds_burst"), section.device_seconds_burst),
        (0.0, DEVICE_SECONDS_MAX),
    )?;
    let requests = read_allowance(
        (format!("{field}.requests_per_second"), section.requests_per_second),
        (format!("{field}.requests_burst"), section.requests_burst),
        (1.0, REQUESTS_MAX),
    )?;
    if section.borrow && device_seconds.is_none() && requests.is_none() {
        let problem =
            "has no effect without a quota: expected `device_seconds_per_second` or `requests_per_second`";
        return Err(WorkloadError::new(format!("{field}.borrow"), problem));
    }
    Ok(Quota { device_seconds, requests, borrow: section.borrow })
}

/// A rate above 0 and a burst, which is one second's worth unless it is given. A burst of requests is at least 1.
fn read_allowance(
    (rate_field, rate): (String, Option<f64>),
    (burst_field, burst): (String, Option<f64>),
    (least, most): (f64, f64),
) -> Result<Option<Allowance>, WorkloadError> {
    let Some(per_second) = rate else {
        return match burst {
            Some(_) => Err(WorkloadError::new(burst_field, "has no effect without the quota: expected both")),
            None => Ok(None),
        };
    };
    if !(per_second > 0.0 && per_second <= most) {
        let problem = format!("expected more than 0 and at most {most}, got {per_second}");
        return Err(WorkloadError::new(rate_field, problem));
    }
    let burst = burst.unwrap_or(per_second.max(least));
    if !(burst > 0.0 && burst >= least && burst <= most) {
        let from = if least > 0.0 { format!("at least {least}") } else { "more than 0".to_owned() };
        let problem = format!("expected {from} and at most {most}, got {burst}");
        return Err(WorkloadError::new(burst_field, problem));
    }
    Ok(Some(Allowance { per_second, burst }))
}
