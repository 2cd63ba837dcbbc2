//! The violations of a plan, with their numbers.

use serde::Serialize;

use crate::id::DeviceId;

/// A violation of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "violation")]
pub enum Violation {
    /// The plan names a device that does not exist.
    #[error("device `{device}`: unknown")]
    UnknownDevice {
        /// Name of the device.
        device: DeviceId,
    },
    /// The plan names a workload that does not exist.
    #[error("workload `{workload}` on `{device}`: unknown")]
    UnknownWorkload {
        /// Name of the workload.
        workload: String,
        /// Name of the device.
        device: DeviceId,
    },
    /// The profile does not cover that batch on that device.
    #[error("workload `{workload}` on `{device}`: {problem}")]
    Unprofiled {
        /// Name of the workload.
        workload: String,
        /// Name of the device.
        device: DeviceId,
        /// What the profile lacks.
        problem: String,
    },
    /// A gpulet of an illegal size, or outside the device.
    #[error(
        "device `{device}`: {units} units from unit {first_unit}, expected one of {legal:?} within {total}"
    )]
    IllegalUnits {
        /// Name of the device.
        device: DeviceId,
        /// First unit of the gpulet.
        first_unit: u32,
        /// Number of units.
        units: u32,
        /// Legal sizes, in units.
        legal: Vec<u32>,
        /// Units of the device.
        total: u32,
    },
    /// Two gpulets own a unit at the same time.
    #[error("device `{device}`: gpulets from unit {first} and {second} overlap in units and time")]
    Overlap {
        /// Name of the device.
        device: DeviceId,
        /// First unit of one gpulet.
        first: u32,
        /// First unit of the other gpulet.
        second: u32,
    },
    /// More gpulets than the device allows.
    #[error("device `{device}`: {gpulets} gpulets, expected at most {most}")]
    TooManyGpulets {
        /// Name of the device.
        device: DeviceId,
        /// Number of gpulets.
        gpulets: usize,
        /// Largest number of gpulets that the device allows.
        most: u32,
    },
    /// A schedule that cannot run.
    #[error("device `{device}`, unit {first_unit}: {problem}")]
    Malformed {
        /// Name of the device.
        device: DeviceId,
        /// First unit of the gpulet.
        first_unit: u32,
        /// What is wrong with the schedule.
        problem: String,
    },
    /// A batch takes longer than its slot's budget.
    #[error(
        "workload `{workload}` on `{device}`: a batch takes {co_located_us:.0} us under contention, its budget is {budget_us:.0} us"
    )]
    OverBudget {
        /// Name of the workload.
        workload: String,
        /// Name of the device.
        device: DeviceId,
        /// Predicted time, microseconds.
        co_located_us: f64,
        /// Budget of the slot, microseconds.
        budget_us: f64,
    },
    /// Budgets do not fit into the cycle.
    #[error(
        "device `{device}`, unit {first_unit}: budgets of {budgets_us:.0} us in a cycle of {duty_us:.0} us"
    )]
    CycleOverfull {
        /// Name of the device.
        device: DeviceId,
        /// First unit of the gpulet.
        first_unit: u32,
        /// Sum of the budgets, microseconds.
        budgets_us: f64,
        /// Length of the cycle, microseconds.
        duty_us: f64,
    },
    /// A response may miss its objective.
    #[error(
        "workload `{workload}` on `{device}`: answered after {worst_us:.0} us at worst, its objective is {slo_us:.0} us"
    )]
    TooLate {
        /// Name of the workload.
        workload: String,
        /// Name of the device.
        device: DeviceId,
        /// Predicted worst case, microseconds.
        worst_us: f64,
        /// Objective, microseconds.
        slo_us: f64,
    },
    /// The plan sends more to a slot than it can serve.
    #[error(
        "workload `{workload}` on `{device}`: sent {rate:.1} requests per second, can serve {capacity:.1}"
    )]
    SlotOverloaded {
        /// Name of the workload.
        workload: String,
        /// Name of the device.
        device: DeviceId,
        /// Requests per second that are sent to the slot.
        rate: f64,
        /// Requests per second that the slot can serve.
        capacity: f64,
    },
    /// The plan serves less than the wanted rate.
    #[error("workload `{workload}`: serves {served:.1} requests per second, expected {wanted:.1}")]
    Unserved {
        /// Name of the workload.
        workload: String,
        /// Sum over its slots, requests per second.
        served: f64,
        /// Rate times headroom, requests per second.
        wanted: f64,
    },
    /// A batch size above the workload's limit.
    #[error("workload `{workload}` on `{device}`: batch {batch}, expected 1 to {most}")]
    BatchTooLarge {
        /// Name of the workload.
        workload: String,
        /// Name of the device.
        device: DeviceId,
        /// Batch size, rows.
        batch: u32,
        /// Largest batch size of the workload, rows.
        most: u32,
    },
    /// More memory than the device has.
    #[error("device `{device}`: {needed} bytes needed, {has} there")]
    Memory {
        /// Name of the device.
        device: DeviceId,
        /// Bytes of base, gpulets, weights and arenas.
        needed: u64,
        /// Bytes available on the device.
        has: u64,
    },
    /// Workloads of tenants that must not share a fault domain.
    #[error(
        "fault domain `{fault_domain}`: holds `{first}` and `{second}`, whose tenants must not share one"
    )]
    Tenants {
        /// Name of the fault domain.
        fault_domain: String,
        /// Name of one workload.
        first: String,
        /// Name of the other workload.
        second: String,
    },
    /// A workload is in too few fault domains.
    #[error("workload `{workload}`: in {has} fault domains, expected at least {needs}")]
    Replicas {
        /// Name of the workload.
        workload: String,
        /// Number of fault domains that hold it.
        has: usize,
        /// Number of fault domains that must hold it.
        needs: u32,
    },
}
