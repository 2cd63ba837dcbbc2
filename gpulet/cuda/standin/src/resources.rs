//! SM resources: read and split once, joined into descriptors, and used for green contexts.

use std::collections::BTreeSet;

use crate::codes::{
    INVALID_CONTEXT, INVALID_RESOURCE_CONFIGURATION, INVALID_RESOURCE_TYPE, INVALID_VALUE, OUT_OF_MEMORY,
};
use crate::machine::{Answer, Descriptor, Green, Machine, Stream};

/// `CU_DEV_RESOURCE_TYPE_SM`.
pub(crate) const TYPE_SM: u32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;
const MAGIC: u32 = 0x5353_4d31;

/// A `CUdevResource` of 13.0 with our own content in its opaque bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Resource {
    pub(crate) kind: u32,
    magic: u32,
    gpu: u32,
    /// The split call that created it; 0 for the whole device.
    split: u32,
    first: u32,
    inner: [u32; 19],
    pub(crate) count: u32,
    min: u32,
    align: u32,
    rest: [u32; 9],
}

const _: () = assert!(size_of::<Resource>() == 144, "the size of the driver's type");

impl Resource {
    const NONE: Self = Self {
        kind: 0,
        magic: 0,
        gpu: 0,
        split: 0,
        first: 0,
        inner: [0; 19],
        count: 0,
        min: 0,
        align: 0,
        rest: [0; 9],
    };

    fn sms(&self) -> impl Iterator<Item = u32> + use<> {
        self.first..self.first.saturating_add(self.count)
    }
}

impl Machine {
    fn resource(&self, gpu: usize, split: u32, first: u32, count: u32) -> Resource {
        if count == 0 {
            return Resource::NONE;
        }
        let (min, align) = if self.shape.granularity { (self.shape.min, self.shape.align) } else { (0, 0) };
        let gpu = u32::try_from(gpu).unwrap_or(u32::MAX);
        Resource { kind: TYPE_SM, magic: MAGIC, gpu, split, first, count, min, align, ..Resource::NONE }
    }

    pub(crate) fn device_resource(&mut self, device: i32, kind: u32) -> Answer<Resource> {
        let gpu = self.gpu(device)?;
        if kind != TYPE_SM {
            return Err(INVALID_RESOURCE_TYPE);
        }
        Ok(self.resource(gpu, 0, 0, self.shape.sms))
    }

    /// The groups and the remainder of a split into `wanted` groups of at least `least` SMs. Without `wanted` it only
    /// counts groups, and the device does not count as split.
    pub(crate) fn split(
        &mut self,
        input: &Resource,
        wanted: Option<u32>,
        flags: u32,
        least: u32,
    ) -> Answer<(Vec<Resource>, Resource)> {
        if input.magic != MAGIC || input.kind != TYPE_SM {
            return Err(
                self.broken("split of a resource that does not hold SMs".to_owned(), INVALID_RESOURCE_TYPE)
            );
        }
        let (min, align) = match flags {
            0 => (self.shape.min, self.shape.align),
            IGNORE_COSCHEDULING => (2, 2),
            _ => return Err(self.broken(format!("split with flags {flags}"), INVALID_VALUE)),
        };
        let size = least.max(min).max(1).next_multiple_of(align);
        let mut groups = input.count / size;
        if self.shape.groups_max > 0 {
            groups = groups.min(self.shape.groups_max);
        }
        if groups == 0 {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        let groups = groups.min(wanted.unwrap_or(groups));
        let gpu = usize::try_from(input.gpu).unwrap_or(usize::MAX);
        if wanted.is_some() {
            self.splits += 1;
            let call = self.splits;
            let Some(state) = self.gpus.get_mut(gpu) else { return Err(INVALID_VALUE) };
            let before = std::mem::replace(&mut state.split, call);
            if before > 0 && input.split == 0 {
                self.broken("the whole device was split twice: the groups overlap".to_owned(), 0);
            }
        }
        let call = self.splits;
        let parts = (0..groups).map(|group| self.resource(gpu, call, input.first + group * size, size));
        let parts: Vec<_> = parts.collect();
        let used = groups * size;
        Ok((parts, self.resource(gpu, call, input.first + used, input.count - used)))
    }

    pub(crate) fn describe(&mut self, parts: &[Resource]) -> Answer<usize> {
        let Some(first) = parts.first() else { return Err(INVALID_VALUE) };
        if parts.iter().any(|part| part.magic != MAGIC || part.kind != TYPE_SM) {
            return Err(self.broken("descriptor of a resource without SMs".to_owned(), INVALID_RESOURCE_TYPE));
        }
        if parts.iter().any(|part| part.split != first.split || part.gpu != first.gpu) {
            let rule = "descriptor of groups of different splits".to_owned();
            return Err(self.broken(rule, INVALID_RESOURCE_CONFIGURATION));
        }
        let mut sms = BTreeSet::new();
        for sm in parts.iter().flat_map(Resource::sms) {
            if !sms.insert(sm) {
                let rule = format!("descriptor that contains SM {sm} twice");
                return Err(self.broken(rule, INVALID_RESOURCE_CONFIGURATION));
            }
        }
        let gpu = usize::try_from(first.gpu).unwrap_or(usize::MAX);
        let handle = self.new_handle();
        self.descriptors.insert(handle, Descriptor { gpu, sms });
        Ok(handle)
    }

    pub(crate) fn green_create(&mut self, descriptor: usize, device: i32, flags: u32) -> Answer<usize> {
        let gpu = self.gpu(device)?;
        if flags != DEFAULT_STREAM {
            let rule = format!("green context with flags {flags}: expected the default stream's");
            return Err(self.broken(rule, INVALID_VALUE));
        }
        if self.gpus.get(gpu).is_none_or(|gpu| gpu.primary.is_none()) {
            let rule = "green context without a retained primary context".to_owned();
            return Err(self.broken(rule, INVALID_CONTEXT));
        }
        let limit = usize::try_from(self.shape.greens_max).unwrap_or(usize::MAX);
        if limit > 0 && self.greens.len() >= limit {
            return Err(OUT_OF_MEMORY);
        }
        let Some(described) = self.descriptors.get(&descriptor) else {
            return Err(self.unknown("cuGreenCtxCreate", "descriptor", descriptor));
        };
        if described.gpu != gpu {
            return Err(INVALID_VALUE);
        }
        let green = Green { gpu, sms: described.sms.clone() };
        let handle = self.new_handle();
        self.greens.insert(handle, green);
        Ok(handle)
    }

    pub(crate) fn green_destroy(&mut self, green: usize) -> Answer<()> {
        if self.greens.remove(&green).is_none() {
            return Err(self.unknown("cuGreenCtxDestroy", "green context", green));
        }
        self.destroyed(green);
        let streams = self.streams.values().filter(|stream| stream.green == Some(green)).count();
        if streams > 0 {
            let rule = format!("green context destroyed before {streams} of its streams");
            return Err(self.broken(rule, INVALID_CONTEXT));
        }
        Ok(())
    }

    pub(crate) fn green_resource(&mut self, green: usize, kind: u32) -> Answer<Resource> {
        if kind != TYPE_SM {
            return Err(INVALID_RESOURCE_TYPE);
        }
        let Some(found) = self.greens.get(&green) else {
            return Err(self.unknown("cuGreenCtxGetDevResource", "green context", green));
        };
        let count = u32::try_from(found.sms.len()).unwrap_or(u32::MAX);
        let first = found.sms.first().copied().unwrap_or(0);
        Ok(self.resource(found.gpu, u32::MAX, first, count))
    }

    pub(crate) fn green_stream(&mut self, green: usize, flags: u32, priority: i32) -> Answer<usize> {
        let Some(found) = self.greens.get(&green) else {
            return Err(self.unknown("cuGreenCtxStreamCreate", "green context", green));
        };
        let gpu = found.gpu;
        if flags != NON_BLOCKING {
            return Err(self.broken(format!("green stream with flags {flags}"), INVALID_VALUE));
        }
        let handle = self.new_handle();
        self.streams.insert(handle, Stream { gpu, green: Some(green), priority, busy: false });
        Ok(handle)
    }

    /// The priority of a stream.
    pub(crate) fn stream_priority(&self, stream: usize) -> Option<i32> {
        Some(self.streams.get(&stream)?.priority)
    }

    /// SMs that the work of a stream may use.
    pub(crate) fn stream_sms(&self, stream: usize) -> Option<BTreeSet<u32>> {
        let stream = self.streams.get(&stream)?;
        match stream.green {
            Some(green) => Some(self.greens.get(&green)?.sms.clone()),
            None => Some((0..self.shape.sms).collect()),
        }
    }
}
