//! Random, truncated and damaged messages: each is refused or understood, without a panic and within bounded memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use models::{Dim, LoadOptions, ModelFiles, ModelName, Signature, TensorSpec, Version};
use oip::{Datatype, Shape};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::socket::{MESSAGE_BYTES_MAX, decode};
use super::*;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that each thread allocates.
struct Counting;

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|allocated| allocated.set(allocated.get() + layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that the decoder reserves for a list before it reads the elements.
const RESERVED_MAX: usize = 2 << 20;
/// Upper bound on allocated bytes per byte of a message: an absent tensor takes one byte of a message and 56 of memory,
/// and a growing list is moved.
const BYTES_PER_BYTE_MAX: usize = 200;

/// Decodes the bytes, converts the message with `convert`, and checks memory and error.
fn check<T: DeserializeOwned>(encoded: &[u8], convert: impl FnOnce(T)) -> bool {
    let before = ALLOCATED.get();
    let decoded = decode::<T>(encoded);
    let allocated = ALLOCATED.get() - before;
    assert!(allocated <= RESERVED_MAX + BYTES_PER_BYTE_MAX * encoded.len(), "{allocated} bytes allocated");
    match decoded {
        Ok(message) => {
            convert(message);
            true
        }
        Err(error) => {
            assert!(error.to_string().starts_with("invalid message: "), "{error}");
            false
        }
    }
}

fn read(head: &TensorHead) {
    if let Ok((datatype, shape, _, bytes)) = head.read() {
        let elements = shape.element_count().unwrap();
        assert!(datatype.size().is_none_or(|size| elements * size as u64 == bytes as u64));
    }
}

/// Feeds the bytes to the decoders of all messages. Returns the number that understood them.
fn check_all(encoded: &[u8]) -> usize {
    let understood = [
        check::<Hello>(encoded, drop),
        check::<Result<Ready, Refused>>(encoded, drop),
        check::<Dying>(encoded, drop),
        check::<Open>(encoded, drop),
        check::<Result<Opened, Refused>>(encoded, drop),
        check::<Load>(encoded, |load| drop(load.files.with("graph".into()))),
        check::<Result<Loaded, Refused>>(encoded, drop),
        check::<Run>(encoded, |run| run.inputs.iter().flatten().for_each(read)),
        check::<Ran>(encoded, |ran| ran.outcome.iter().flatten().for_each(read)),
    ];
    understood.into_iter().filter(|understood| *understood).count()
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap()
}

/// Decodes bytes as the messages of one type, and says whether that worked.
type Decoder = fn(&[u8]) -> bool;

/// Messages of every type, each with its decoder.
fn samples() -> Vec<(Vec<u8>, Decoder)> {
    fn understands<T: DeserializeOwned>(encoded: &[u8]) -> bool {
        check::<T>(encoded, drop)
    }
    let spec = TensorSpec {
        name: "image".to_owned(),
        datatype: Datatype::Fp32,
        dims: vec![Dim::Free, Dim::Fixed(224)],
        optional: true,
    };
    let signature = Signature { inputs: vec![spec.clone(); 3], outputs: vec![spec], max_batch: 8 };
    let name = ModelName::new("digits").unwrap();
    let files = ModelFiles::from_bytes(name, Version(3), models::Format::Onnx, "graph");
    let files = files.in_folder("/models/digits/3".into());
    let known = models::Known { engine: "tract", signature };
    let options = LoadOptions { known: Some(known.clone()), cores: vec![1, 300], ..LoadOptions::default() };
    let head = TensorHead::new(Datatype::Fp32, &Shape::from_extents(&[8, 224]), 64, 8 * 224 * 4);
    let load = Load { files: WireFiles::from(&files), options, bytes_max: 4 << 30 };
    let loaded = Loaded { session: known, settles_each_size: true };
    let hello = Hello {
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
        device: "cpu0".to_owned(),
        description: "{\"device\":{}}".to_owned(),
    };
    let run = Run {
        rows: 8,
        inputs: vec![Some(head.clone()), None, Some(head.clone())],
        background: true,
        trim: false,
    };
    let ran = |outcome| Ran { outcome, holds_inputs: true, took_ns: u64::MAX };
    vec![
        (encode(&hello), understands::<Hello>),
        (
            encode(&Ok::<_, Refused>(Ready { protocol: PROTOCOL, version: "0.1.0".to_owned(), units: 8 })),
            understands::<Result<Ready, Refused>>,
        ),
        (encode(&Err::<Ready, _>(Refused::new("no device"))), understands::<Result<Ready, Refused>>),
        (encode(&Dying("illegal address".to_owned())), understands::<Dying>),
        (encode(&Open { lane: 4, first_unit: 300, units: 70_000, idle_priority: true }), understands::<Open>),
        (encode(&Ok::<_, Refused>(Opened { cores: vec![0, 200] })), understands::<Result<Opened, Refused>>),
        (encode(&load), understands::<Load>),
        (encode(&Ok::<_, Refused>(loaded)), understands::<Result<Loaded, Refused>>),
        (encode(&run), understands::<Run>),
        (encode(&ran(Ok(vec![head]))), understands::<Ran>),
        (encode(&ran(Err(models::engine::RunError::Engine("out of memory".to_owned())))), understands::<Ran>),
    ]
}

/// A sample with damage: bytes overwritten, removed and inserted. `0xFF` makes lengths huge.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0xFF), Just(0x80), Just(0), any::<u8>()];
    let edit = (any::<Index>(), 0..3_u8, vec(byte, 1..12));
    let sample = select(samples().into_iter().map(|(encoded, _)| encoded).collect::<Vec<_>>());
    (sample, vec(edit, 1..6)).prop_map(|(mut encoded, edits)| {
        for (at, action, bytes) in edits {
            let at = at.index(encoded.len() + 1);
            match action {
                0 => encoded.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = new),
                1 => drop(encoded.drain(at..(at + bytes.len()).min(encoded.len()))),
                _ => drop(encoded.splice(at..at, bytes)),
            }
        }
        encoded
    })
}

#[test]
fn every_sample_is_understood_and_every_part_or_extension_of_it_is_refused() {
    for (encoded, understands) in samples() {
        assert!(understands(&encoded));
        assert!((0..encoded.len()).all(|len| !understands(&encoded[..len])));
        assert!(!understands(&[&encoded[..], &[0]].concat()));
    }
}

#[test]
fn lists_of_claimed_length_do_not_allocate_it() {
    // A length of 2^64 - 1, and the longest message of the smallest elements.
    let longest = [&[0xFF, 0xFF, 0x07][..], &vec![0; MESSAGE_BYTES_MAX - 3]].concat();
    let claimed = [&[0xFF; 9][..], &[1], &[0; 100]].concat();
    for encoded in [longest, claimed, vec![0xFF; 9], vec![0xFF; 40], vec![0xFF; MESSAGE_BYTES_MAX]] {
        check_all(&encoded);
        check_all(&[&[8][..], &encoded].concat());
        check_all(&[&[0][..], &encoded].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_refused_or_understood(encoded in vec(any::<u8>(), 0..2000)) {
        check_all(&encoded);
    }

    #[test]
    fn damaged_messages_are_refused_or_understood(encoded in damaged()) {
        check_all(&encoded);
    }
}
