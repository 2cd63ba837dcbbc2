//! Round trips, and decoding of arbitrary and mutated bodies.

use bytes::Bytes;
use proptest::prelude::*;

use crate::json::{Encoded, decode_infer, encode_infer};
use crate::sample::{datatype, finite_tensor, tensor};
use crate::{InferResponse, Limits, OutputParameters, Tensor, TensorData};

fn respond(outputs: Vec<(Tensor, OutputParameters)>) -> InferResponse {
    InferResponse {
        model_name: "m".into(),
        model_version: "1".into(),
        id: "7".into(),
        parameters: vec![],
        outputs,
    }
}

/// An output of an answer looks like an input of a request; only the name of the list differs.
fn as_request(encoded: &Encoded) -> (Bytes, Option<usize>) {
    let head = String::from_utf8(encoded.head.to_vec()).unwrap().replacen("\"outputs\"", "\"inputs\"", 1);
    let body = encoded.tail.iter().fold(head.clone().into_bytes(), |body, part| [&body[..], part].concat());
    (body.into(), encoded.json_len.map(|_| head.len()))
}

fn decoded(encoded: &Encoded) -> Vec<Tensor> {
    let (body, json_len) = as_request(encoded);
    let request = decode_infer("m", Some("1"), &body, json_len, &Limits::default()).unwrap();
    let inline = |data| match data {
        TensorData::Inline(data) => data,
        TensorData::Shared(region) => panic!("{region:?}"),
    };
    let inputs = request.inputs.into_iter();
    inputs
        .map(|i| Tensor { name: i.name, datatype: i.datatype, shape: i.shape, data: inline(i.data) })
        .collect()
}

proptest! {
    #[test]
    fn json_round_trip(tensor in datatype().prop_flat_map(finite_tensor)) {
        let encoded = encode_infer(&respond(vec![(tensor.clone(), OutputParameters::default())]), false).unwrap();
        prop_assert_eq!(decoded(&encoded), vec![tensor]);
    }

    #[test]
    fn binary_round_trip(
        first in datatype().prop_flat_map(tensor),
        second in datatype().prop_flat_map(finite_tensor),
        third in datatype().prop_flat_map(tensor),
    ) {
        let mut tensors = vec![first, second, third];
        for (index, tensor) in tensors.iter_mut().enumerate() {
            tensor.name = format!("output {index}");
        }
        let json = OutputParameters { binary: Some(false), ..OutputParameters::default() };
        let parameters = [OutputParameters::default(), json, OutputParameters::default()];
        let response = respond(tensors.iter().cloned().zip(parameters).collect());
        prop_assert_eq!(decoded(&encode_infer(&response, true).unwrap()), tensors);
    }

    #[test]
    fn random_bytes_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..256),
        json_len in prop::option::of(0_usize..300),
    ) {
        let _ = decode_infer("m", None, &body.into(), json_len, &Limits::default());
    }

    #[test]
    fn mutated_requests_never_panic(
        tensor in datatype().prop_flat_map(finite_tensor),
        binary in any::<bool>(),
        shift in -3_isize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let encoded = encode_infer(&respond(vec![(tensor, OutputParameters::default())]), binary).unwrap();
        let (body, json_len) = as_request(&encoded);
        let mut body = body.to_vec();
        let syntax = b"[]{}\",:-0e.\\n";
        for (at, byte, structural) in edits {
            let at = at.index(body.len());
            body[at] = if structural { syntax[usize::from(byte) % syntax.len()] } else { byte };
        }
        let json_len = json_len.map(|length| length.saturating_add_signed(shift));
        if let Ok(request) = decode_infer("m", None, &body.into(), json_len, &Limits::default()) {
            for input in request.inputs {
                let TensorData::Inline(data) = input.data else { continue };
                crate::binary::check(&data, input.datatype, &input.shape, crate::error::Field::Top("x")).unwrap();
            }
        }
    }
}
