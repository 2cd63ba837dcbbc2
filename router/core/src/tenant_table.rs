//! The weights and quotas of all tenants.

use crate::{ConfigError, Tenant, TenantQuota};

/// Weights and quotas of tenants 0, 1, 2 ..., all within their ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantTable {
    weights: Vec<u32>,
    quotas: Vec<TenantQuota>,
}

impl TenantTable {
    /// Tenants beyond the entries have weight 1 and no quota.
    ///
    /// # Errors
    /// The first entry that is out of range.
    pub fn new(weights: Vec<u32>, quotas: Vec<TenantQuota>) -> Result<Self, ConfigError> {
        if let Some(tenant) = weights.iter().position(|&weight| weight == 0) {
            return Err(ConfigError::new(format!("weights[{tenant}]"), "is 0, expected at least 1"));
        }
        for (field, entries) in [("weights", weights.len()), ("quotas", quotas.len())] {
            if entries > Tenant::COUNT {
                return Err(ConfigError::new(field, format!("has more than {} entries", Tenant::COUNT)));
            }
        }
        for (tenant, quota) in quotas.iter().enumerate() {
            quota.validate(&format!("quotas[{tenant}]"))?;
        }
        Ok(Self { weights, quotas })
    }

    /// Weights by tenant.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Quotas by tenant.
    pub fn quotas(&self) -> &[TenantQuota] {
        &self.quotas
    }
}
