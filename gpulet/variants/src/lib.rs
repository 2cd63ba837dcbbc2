//! Plans for families: which variant of a model, on which type of device, with which share and batch size, so that every
//! objective and every quality is kept at the lowest cost.
//!
//! A [`Question`] has the devices with their costs, the workloads, and the families with the quality of each variant.
//! [`plan`] chooses a mix of variants for each family and places it with a placement policy. [`Fluid`] is a lower bound on the cost
//! of any plan, by integer programming. [`published`] has the policies of INFaaS, MArk, Proteus, IRIS and of Cho et al. on the same
//! question. [`LivePolicy`] plans families while a server runs. [`WithoutDevice`] says what the loss of a spot device does.
//!
//! Costs are those of the devices, per hour in any currency. Qualities are shares of right answers, from 0 to 1.

#![forbid(unsafe_code)]

mod costs;
mod current_devices;
mod fluid;
mod live;
mod loss;
mod mix;
pub mod published;
mod question;
mod search;
mod without_device;
mod work;

pub use self::costs::{VariantCost, variant_costs};
pub use self::fluid::Fluid;
pub use self::live::{LivePolicy, live_policies};
pub use self::loss::{Losses, losses};
pub use self::mix::Mix;
pub use self::question::{Demand, Family, Group, Question, Spot, SpotRules, Variant};
pub use self::search::{Found, best_quality, plan, replan};
pub use self::without_device::{WithoutDevice, without_each};
pub use self::work::each_batch;
