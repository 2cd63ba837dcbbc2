//! What can be wrong with a plan, with the numbers.

use serde::Serialize;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "violation")]
pub enum Violation {
    /// The plan names a device that is not there.
    #[error("device `{device}`: unknown")]
    UnknownDevice {
        /// Its name.
        device: String,
    },
    /// The plan names a workload that is not there.
    #[error("workload `{workload}` on `{device}`: unknown")]
    UnknownWorkload {
        /// Its name.
        workload: String,
        /// Where.
        device: String,
    },
    /// Nobody knows how fast that batch is there.
    #[error("workload `{workload}` on `{device}`: {problem}")]
    Unprofiled {
        /// Which workload.
        workload: String,
        /// Where.
        device: String,
        /// What the profile lacks.
        problem: String,
    },
    /// A gpulet of a size that the device does not give, or outside it.
    #[error(
        "device `{device}`: {units} units from unit {first_unit}, expected one of {legal:?} within {total}"
    )]
    IllegalUnits {
        /// Where.
        device: String,
        /// First unit.
        first_unit: u32,
        /// How many.
        units: u32,
        /// Legal sizes.
        legal: Vec<u32>,
        /// Units of the device.
        total: u32,
    },
    /// Two gpulets own a unit at the same time.
    #[error("device `{device}`: gpulets from unit {first} and {second} overlap in units and time")]
    Overlap {
        /// Where.
        device: String,
        /// First unit of one.
        first: u32,
        /// First unit of the other.
        second: u32,
    },
    /// More gpulets than the device allows.
    #[error("device `{device}`: {gpulets} gpulets, expected at most {most}")]
    TooManyGpulets {
        /// Where.
        device: String,
        /// How many.
        gpulets: usize,
        /// At most.
        most: u32,
    },
    /// A schedule that cannot be run.
    #[error("device `{device}`, unit {first_unit}: {problem}")]
    Malformed {
        /// Where.
        device: String,
        /// First unit of the gpulet.
        first_unit: u32,
        /// What is wrong with it.
        problem: String,
    },
    /// A batch takes longer than its slot's budget.
    #[error(
        "workload `{workload}` on `{device}`: a batch takes {co_located_us:.0} us beside its neighbours, its budget is {budget_us:.0} us"
    )]
    OverBudget {
        /// Which workload.
        workload: String,
        /// Where.
        device: String,
        /// Predicted time.
        co_located_us: f64,
        /// Budget.
        budget_us: f64,
    },
    /// Budgets do not fit into the cycle.
    #[error(
        "device `{device}`, unit {first_unit}: budgets of {budgets_us:.0} us in a cycle of {duty_us:.0} us"
    )]
    CycleOverfull {
        /// Where.
        device: String,
        /// First unit of the gpulet.
        first_unit: u32,
        /// Sum of the budgets.
        budgets_us: f64,
        /// The cycle.
        duty_us: f64,
    },
    /// A request may be answered after its objective.
    #[error(
        "workload `{workload}` on `{device}`: answered after {worst_us:.0} us at worst, its objective is {slo_us:.0} us"
    )]
    TooLate {
        /// Which workload.
        workload: String,
        /// Where.
        device: String,
        /// Predicted.
        worst_us: f64,
        /// Promised.
        slo_us: f64,
    },
    /// More is sent to a slot than it can serve.
    #[error("workload `{workload}` on `{device}`: sent {rate:.1} a second, can serve {capacity:.1}")]
    SlotOverloaded {
        /// Which workload.
        workload: String,
        /// Where.
        device: String,
        /// Sent.
        rate: f64,
        /// Servable.
        capacity: f64,
    },
    /// The plan serves less than was asked for.
    #[error("workload `{workload}`: {served:.1} a second served, {wanted:.1} wanted")]
    Unserved {
        /// Which workload.
        workload: String,
        /// Sum over its slots.
        served: f64,
        /// Rate times head-room.
        wanted: f64,
    },
    /// A batch above the workload's limit.
    #[error("workload `{workload}` on `{device}`: batch {batch}, expected 1 to {most}")]
    BatchTooLarge {
        /// Which workload.
        workload: String,
        /// Where.
        device: String,
        /// Rows.
        batch: u32,
        /// At most.
        most: u32,
    },
    /// More memory than the device has.
    #[error("device `{device}`: {needed} bytes needed, {has} there")]
    Memory {
        /// Where.
        device: String,
        /// Base, gpulets, weights and arenas.
        needed: u64,
        /// What may be used.
        has: u64,
    },
    /// Workloads of tenants that must not share a fate.
    #[error(
        "fault domain `{fault_domain}`: holds `{first}` and `{second}`, whose tenants must not share one"
    )]
    Tenants {
        /// Where.
        fault_domain: String,
        /// One workload.
        first: String,
        /// The other.
        second: String,
    },
    /// Too few fault domains hold a workload.
    #[error("workload `{workload}`: in {has} fault domains, expected at least {needs}")]
    Replicas {
        /// Which workload.
        workload: String,
        /// In how many it is.
        has: usize,
        /// In how many it should be.
        needs: u32,
    },
}
