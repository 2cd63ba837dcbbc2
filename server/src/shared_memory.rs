//! System shared memory extension: tensors in POSIX shared memory that client and server both open.
//!
//! Regions are read and written with positioned file calls instead of a mapping. A client that truncates its object would
//! kill a process that maps it; here a read only fails. This also needs no `unsafe`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use node::reason::{Reason, Refusal};
use oip::proto::system_shared_memory_status_response::RegionStatus;
use oip::{InferRequest, InferResponse, InputTensor, SharedMemoryRef, TensorData};
use rustix::fs::Mode;
use rustix::shm;

/// Most regions registered at once.
const REGIONS: usize = 1024;
/// Longest name or key.
const NAME_BYTES: usize = 255;
/// Larger copies run outside the async threads.
const INLINE_COPY: u64 = 1024 * 1024;

#[derive(Debug)]
struct Region {
    status: RegionStatus,
    object: File,
}

/// All registered regions.
#[derive(Debug, Default)]
pub struct SharedMemory {
    regions: RwLock<BTreeMap<String, Arc<Region>>>,
}

fn malformed(message: String) -> Refusal {
    Refusal::new(Reason::Malformed, message)
}

impl SharedMemory {
    /// Opens the object `key` and registers `byte_size` bytes of it, from `offset` on, as `name`. Fails if the
    /// name is taken, the object does not exist or is too short, or the table is full.
    pub fn register(&self, name: &str, key: &str, offset: u64, byte_size: u64) -> Result<(), Refusal> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(malformed(format!("shared memory region name: expected 1 to {NAME_BYTES} bytes")));
        }
        let plain = key.strip_prefix('/').unwrap_or(key);
        if plain.is_empty()
            || plain.len() > NAME_BYTES
            || plain.contains(['/', '\0'])
            || plain.starts_with('.')
        {
            return Err(malformed(format!(
                "shared memory region `{name}`: key: expected the name of a POSIX shared-memory object like `/name`"
            )));
        }
        let end = offset.checked_add(byte_size).filter(|_| byte_size > 0).ok_or_else(|| {
            malformed(format!("shared memory region `{name}`: offset and byte_size: expected a size above 0"))
        })?;
        let object = shm::open(format!("/{plain}"), shm::OFlags::RDWR, Mode::empty()).map_err(|error| {
            malformed(format!("shared memory region `{name}`: cannot open object `/{plain}`: {error}"))
        })?;
        let object = File::from(object);
        let length = object.metadata().map_or(0, |metadata| metadata.len());
        if end > length {
            return Err(malformed(format!(
                "shared memory region `{name}`: offset + byte_size is {end}, and object `/{plain}` has {length} bytes"
            )));
        }
        let status = RegionStatus { name: name.to_owned(), key: key.to_owned(), offset, byte_size };
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if regions.contains_key(name) {
            return Err(malformed(format!(
                "shared memory region `{name}` is already registered: unregister it first"
            )));
        }
        if regions.len() >= REGIONS {
            return Err(malformed(format!(
                "shared memory region `{name}`: {REGIONS} regions are registered, which is the limit: unregister some"
            )));
        }
        regions.insert(name.to_owned(), Arc::new(Region { status, object }));
        Ok(())
    }

    /// Unregisters a region, or all of them. Unknown names are not an error.
    pub fn unregister(&self, name: Option<&str>) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) => {
                regions.remove(name);
            }
            None => regions.clear(),
        }
    }

    /// Registered regions by name, or the one named.
    pub fn status(&self, name: Option<&str>) -> Result<Vec<RegionStatus>, Refusal> {
        let Some(name) = name else {
            let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
            return Ok(regions.values().map(|region| region.status.clone()).collect());
        };
        Ok(vec![self.find(name)?.status.clone()])
    }

    fn find(&self, name: &str) -> Result<Arc<Region>, Refusal> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(name).cloned().ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            let message = format!("unable to find shared memory region: `{shown}`: register it first");
            Refusal::new(Reason::UnknownRegion, message)
        })
    }

    /// Reads the inputs in shared memory into the request, at most `bytes_limit` bytes in total, and checks the regions
    /// of outputs.
    pub async fn resolve(&self, request: &mut InferRequest, bytes_limit: u64) -> Result<(), Refusal> {
        for output in request.outputs.iter().flatten() {
            if let Some(place) = &output.parameters.shared_memory {
                self.find(&place.region)?.position(place).map_err(|why| at("output", &output.name, why))?;
            }
        }
        let mut reads = Vec::new();
        let mut total = 0_u64;
        for (index, input) in request.inputs.iter().enumerate() {
            if let TensorData::Shared(place) = &input.data {
                let region = self.find(&place.region)?;
                let position = region.position(place).map_err(|why| at("input", &input.name, why))?;
                total = total.saturating_add(place.byte_size);
                reads.push((index, region, position, place.byte_size));
            }
        }
        if total > bytes_limit {
            return Err(Refusal::new(
                Reason::BodyTooLarge,
                format!("inputs in shared memory: {total} bytes, expected at most {bytes_limit}"),
            ));
        }
        let read_all = move || -> Result<Vec<(usize, Bytes)>, String> {
            reads
                .into_iter()
                .map(|(index, region, position, length)| Ok((index, region.read(position, length)?)))
                .collect()
        };
        let read = if total > INLINE_COPY { offload(read_all).await? } else { read_all() };
        for (index, data) in read.map_err(malformed)? {
            if let Some(input) = request.inputs.get_mut(index) {
                check_elements(input, &data)?;
                input.data = TensorData::Inline(data);
            }
        }
        Ok(())
    }

    /// Writes outputs to their regions. They stay in the response without data.
    pub async fn deliver(&self, response: &mut InferResponse) -> Result<(), Refusal> {
        for (tensor, parameters) in &mut response.outputs {
            let Some(place) = &parameters.shared_memory else { continue };
            let region = self.find(&place.region)?;
            let position = region.position(place).map_err(|why| at("output", &tensor.name, why))?;
            let length = tensor.data.len() as u64;
            if length > place.byte_size {
                return Err(malformed(format!(
                    "output `{}`: needs {length} bytes, and its place in shared memory region `{}` has {}",
                    tensor.name, place.region, place.byte_size
                )));
            }
            let data = std::mem::take(&mut tensor.data);
            let write = move || region.write(position, &data);
            let written = if length > INLINE_COPY { offload(write).await? } else { write() };
            written.map_err(|why| at("output", &tensor.name, why))?;
        }
        Ok(())
    }
}

fn at(kind: &str, name: &str, why: String) -> Refusal {
    malformed(format!("{kind} `{name}`: {why}"))
}

async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Refusal::new(Reason::Internal, format!("shared memory copy did not end: {error}")))
}

impl Region {
    /// Offset of a reference in the object, if it is inside the region.
    fn position(&self, place: &SharedMemoryRef) -> Result<u64, String> {
        let status = &self.status;
        let inside = place.offset.checked_add(place.byte_size).is_some_and(|end| end <= status.byte_size);
        if !inside {
            return Err(format!(
                "shared_memory_offset + shared_memory_byte_size: expected at most the {} bytes of region `{}`",
                status.byte_size, status.name
            ));
        }
        Ok(status.offset.saturating_add(place.offset))
    }

    fn still_holds(&self, end: u64) -> Result<(), String> {
        let length = self.object.metadata().map_or(0, |metadata| metadata.len());
        if end > length {
            return Err(format!(
                "shared memory region `{}`: the object was truncated to {length} bytes after registration",
                self.status.name
            ));
        }
        Ok(())
    }

    fn read(&self, position: u64, length: u64) -> Result<Bytes, String> {
        self.still_holds(position.saturating_add(length))?;
        let length = usize::try_from(length).map_err(|error| error.to_string())?;
        let mut data = vec![0_u8; length];
        self.object
            .read_exact_at(&mut data, position)
            .map_err(|error| format!("shared memory region `{}`: {error}", self.status.name))?;
        Ok(data.into())
    }

    fn write(&self, position: u64, data: &[u8]) -> Result<(), String> {
        self.still_holds(position.saturating_add(data.len() as u64))?;
        self.object
            .write_all_at(data, position)
            .map_err(|error| format!("shared memory region `{}`: {error}", self.status.name))
    }
}

/// The checks of the codecs for inline data, applied to data from a region.
fn check_elements(input: &InputTensor, data: &Bytes) -> Result<(), Refusal> {
    let elements = input.shape.element_count().unwrap_or(u64::MAX);
    let (sound, expected) = match input.datatype.size() {
        Some(size) => {
            let expected = elements.saturating_mul(size as u64);
            (expected == data.len() as u64, format!("{expected} bytes"))
        }
        None => (count_strings(data) == Some(elements), format!("{elements} length-prefixed elements")),
    };
    if sound {
        return Ok(());
    }
    Err(malformed(format!(
        "input `{}`: datatype {} and shape {} need {expected}, and shared_memory_byte_size gives {} bytes",
        input.name,
        input.datatype,
        input.shape,
        data.len()
    )))
}

/// Elements of a `BYTES` tensor, or `None` if the last one is incomplete.
fn count_strings(data: &[u8]) -> Option<u64> {
    oip::binary::elements(data).try_fold(0, |count, element| element.ok().map(|_| count + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::{Datatype, OutputParameters, RequestedOutput, Shape, Tensor};

    /// A POSIX shared-memory object that goes away with the test.
    struct Object(String, File);

    impl Object {
        fn new(name: &str, length: u64) -> Self {
            let key = format!("/tessera-test-{}-{name}", std::process::id());
            let flags = shm::OFlags::CREATE | shm::OFlags::RDWR | shm::OFlags::TRUNC;
            let file = File::from(shm::open(&key, flags, Mode::RUSR | Mode::WUSR).unwrap());
            file.set_len(length).unwrap();
            Self(key, file)
        }
    }

    impl Drop for Object {
        fn drop(&mut self) {
            let _ = shm::unlink(&self.0);
        }
    }

    fn place(offset: u64, byte_size: u64) -> SharedMemoryRef {
        SharedMemoryRef { region: "r".to_owned(), offset, byte_size }
    }

    fn request(place: SharedMemoryRef, output: Option<SharedMemoryRef>) -> InferRequest {
        InferRequest {
            model_name: "m".to_owned(),
            model_version: None,
            id: String::new(),
            parameters: Vec::new(),
            inputs: vec![InputTensor {
                name: "x".to_owned(),
                datatype: Datatype::Fp32,
                shape: Shape::from_extents(&[2]),
                data: TensorData::Shared(place),
                parameters: Vec::new(),
            }],
            outputs: output.map(|place| {
                let parameters = OutputParameters { shared_memory: Some(place), ..Default::default() };
                vec![RequestedOutput { name: "y".to_owned(), parameters }]
            }),
            binary_output: false,
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn inputs_are_read_from_and_outputs_written_to_the_object() {
        let object = Object::new("both", 64);
        object.1.write_all_at(&[1, 2, 3, 4, 5, 6, 7, 8], 24).unwrap();
        let memory = SharedMemory::default();
        memory.register("r", &object.0, 16, 48).unwrap();
        let mut asked = request(place(8, 8), Some(place(16, 8)));
        memory.resolve(&mut asked, 1024).await.unwrap();
        assert_eq!(asked.inputs[0].data, TensorData::Inline(Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8])));

        let parameters = OutputParameters { shared_memory: Some(place(16, 8)), ..Default::default() };
        let tensor = Tensor {
            name: "y".to_owned(),
            datatype: Datatype::Uint8,
            shape: Shape::from_extents(&[3]),
            data: Bytes::from_static(&[9, 8, 7]),
        };
        let mut response = InferResponse {
            model_name: "m".to_owned(),
            model_version: "1".to_owned(),
            id: String::new(),
            parameters: Vec::new(),
            outputs: vec![(tensor, parameters)],
        };
        memory.deliver(&mut response).await.unwrap();
        assert!(response.outputs[0].0.data.is_empty());
        let mut written = [0; 3];
        object.1.read_exact_at(&mut written, 32).unwrap();
        assert_eq!(written, [9, 8, 7]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn references_outside_a_region_are_refused_by_name() {
        let object = Object::new("bounds", 32);
        let memory = SharedMemory::default();
        memory.register("r", &object.0, 0, 32).unwrap();
        for (asked, word) in [
            (request(place(28, 8), None), "input `x`: shared_memory_offset"),
            (request(place(u64::MAX, 8), None), "input `x`: shared_memory_offset"),
            (request(place(0, 12), None), "need 8 bytes"),
            (request(place(0, 8), Some(place(30, 8))), "output `y`"),
        ] {
            let refused = memory.resolve(&mut asked.clone(), 1024).await.unwrap_err();
            assert_eq!(refused.reason, Reason::Malformed);
            assert!(refused.message.contains(word), "{}", refused.message);
        }
        let refused = memory.resolve(&mut request(place(0, 8), None), 7).await.unwrap_err();
        assert_eq!(refused.reason, Reason::BodyTooLarge);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_truncated_object_is_an_error_and_not_a_signal() {
        let object = Object::new("truncated", 4096);
        let memory = SharedMemory::default();
        memory.register("r", &object.0, 0, 4096).unwrap();
        object.1.set_len(4).unwrap();
        let refused = memory.resolve(&mut request(place(0, 8), None), 1024).await.unwrap_err();
        assert!(refused.message.contains("was truncated to 4 bytes"), "{}", refused.message);
    }

    #[test]
    fn registration_names_what_is_wrong() {
        let object = Object::new("register", 16);
        let memory = SharedMemory::default();
        memory.register("r", &object.0, 0, 16).unwrap();
        for (name, key, offset, size, word) in [
            ("r", object.0.as_str(), 0, 16, "already registered"),
            ("", object.0.as_str(), 0, 16, "region name"),
            ("s", object.0.as_str(), 8, 16, "has 16 bytes"),
            ("s", object.0.as_str(), u64::MAX, 16, "offset and byte_size"),
            ("s", object.0.as_str(), 0, 0, "above 0"),
            ("s", "/../etc/passwd", 0, 16, "key"),
            ("s", "", 0, 16, "key"),
            ("s", "/no-such-object-here", 0, 16, "cannot open"),
        ] {
            let refused = memory.register(name, key, offset, size).unwrap_err();
            assert!(refused.message.contains(word), "{}", refused.message);
        }
        assert_eq!(memory.status(None).unwrap().len(), 1);
        assert!(memory.status(Some("s")).is_err());
        memory.unregister(Some("r"));
        memory.unregister(None);
        assert_eq!(memory.status(None).unwrap(), []);
    }

    #[test]
    fn strings_are_counted_only_when_whole() {
        assert_eq!(count_strings(&[]), Some(0));
        assert_eq!(count_strings(&[1, 0, 0, 0, b'a', 0, 0, 0, 0]), Some(2));
        assert_eq!(count_strings(&[2, 0, 0, 0, b'a']), None);
        assert_eq!(count_strings(&[1, 0]), None);
        assert_eq!(count_strings(&[255, 255, 255, 255, 0]), None);
    }
}
