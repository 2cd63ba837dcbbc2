//! Identifiers inside the core.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One loaded version of one model. The caller chooses the number and may reuse it after the version was unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelId(pub u32);

/// A device, by the name that configurations and plans use for it. Copies share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for DeviceId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for DeviceId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

/// The name, so that a device can be passed where only its name matters.
impl Deref for DeviceId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for DeviceId {
    fn eq(&self, name: &str) -> bool {
        *self.0 == *name
    }
}

impl PartialEq<&str> for DeviceId {
    fn eq(&self, name: &&str) -> bool {
        *self.0 == **name
    }
}

/// Maps by device can be asked by name.
impl Borrow<str> for DeviceId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A routing table. Counts up with every switch; 0 is the empty table at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A proposed plan, numbered from 1 in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProposalId(pub u64);

/// A step of a rollout. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepId(pub u64);

/// A gpulet. Unlike its units, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuletId {
    /// The epoch in force when the gpulet was planned.
    pub epoch: Epoch,
    /// Number among the gpulets of that epoch.
    pub number: u64,
}

macro_rules! counts_up {
    ($($id:ident),+) => {
        $(impl $id {
            /// The one after it.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        })+
    };
}

counts_up![Epoch, ProposalId];

impl fmt::Display for GpuletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch.0, self.number)
    }
}

macro_rules! displayed_as_number {
    ($($id:ident),+) => {
        $(impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })+
    };
}

displayed_as_number![ModelId, Epoch, ProposalId];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_and_read_as_its_name() {
        let device = DeviceId::from("gpu0");
        assert_eq!(serde_json::to_string(&device).unwrap(), r#""gpu0""#);
        assert_eq!(serde_json::from_str::<DeviceId>(r#""gpu0""#).unwrap(), device);
        assert_eq!((device.to_string(), format!("{device:?}")), ("gpu0".to_owned(), r#""gpu0""#.to_owned()));
        assert_eq!(device, *"gpu0");
        let later = DeviceId::from("gpu1");
        assert!(device < later, "ordered by name");
    }
}
