//! A request as a flat JSON object, whose members are inputs by name and parameters, and a response as such an object.

use std::collections::BTreeMap;

use models::{Dim, TensorSpec};
use node::reason::{Reason, Refusal};
use oip::InferResponse;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::service::ModelView;

/// The client sent members and no list of inputs.
pub fn in_words_of_client(mut refusal: Refusal, names: &[String]) -> Refusal {
    for (index, name) in names.iter().enumerate() {
        refusal.message = refusal.message.replace(&format!("inputs[{index}]"), &format!("input `{name}`"));
    }
    refusal
}

/// The flat object as a request of the protocol, and the names of its inputs in order.
pub fn request(view: &ModelView, body: &[u8]) -> Result<(Vec<String>, Vec<u8>), Refusal> {
    let malformed =
        |error: serde_json::Error| Refusal::new(Reason::Malformed, format!("request body: {error}"));
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).map_err(malformed)?;
    let (mut names, mut inputs) = (Vec::new(), Vec::new());
    let mut parameters: BTreeMap<String, &RawValue> = BTreeMap::new();
    let mut request = BTreeMap::new();
    for (name, value) in members {
        if let Some(spec) = view.signature.inputs.iter().find(|spec| spec.name == name) {
            inputs.push(input(spec, value)?);
            names.push(name);
        } else if name == "id" {
            request.insert("id", value.to_owned());
        } else if name == "parameters" {
            let given: BTreeMap<String, &RawValue> = serde_json::from_str(value.get())
                .map_err(|error| Refusal::new(Reason::Malformed, format!("parameters: {error}")))?;
            parameters.extend(given);
        } else {
            parameters.insert(name, value);
        }
    }
    let raw =
        |text: Result<String, serde_json::Error>| text.and_then(RawValue::from_string).map_err(malformed);
    let inputs = RawValue::from_string(format!("[{}]", inputs.join(","))).map_err(malformed)?;
    request.insert("inputs", inputs);
    request.insert("parameters", raw(serde_json::to_string(&parameters))?);
    Ok((names, serde_json::to_vec(&request).map_err(malformed)?))
}

/// The shape that this many elements have: the last free dimension takes those that the fixed ones leave, and other free dimensions are 1.
/// `None`: they do not fill one.
pub fn filled(dims: &[Dim], count: u64) -> Option<Vec<u64>> {
    let fixed = dims.iter().try_fold(1_u64, |product, dim| match dim {
        Dim::Fixed(extent) => product.checked_mul(*extent),
        Dim::Free => Some(product),
    });
    let fixed = fixed.filter(|fixed| *fixed > 0 && count.is_multiple_of(*fixed))?;
    let mut rest = count / fixed;
    let mut shape: Vec<u64> = Vec::with_capacity(dims.len());
    for dim in dims.iter().rev() {
        shape.push(match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Free => std::mem::replace(&mut rest, 1),
        });
    }
    shape.reverse();
    (rest == 1).then_some(shape)
}

/// One input as a tensor of the protocol. Its shape follows from the number of its elements.
fn input(spec: &TensorSpec, value: &RawValue) -> Result<String, Refusal> {
    let wrong = |what: String| Refusal::new(Reason::Malformed, format!("input `{}`: {what}", spec.name));
    let mut elements = Vec::new();
    flatten(value, &mut elements).map_err(|error| wrong(error.to_string()))?;
    if elements.iter().any(|element| element.starts_with('{') || *element == "null") {
        return Err(wrong("expected one value or a list of values".to_owned()));
    }
    let count = elements.len() as u64;
    let shape = filled(&spec.dims, count).ok_or_else(|| {
        let dims: Vec<i64> = spec.dims.iter().map(|dim| dim.to_wire()).collect();
        wrong(format!("has {count} elements, which do not fill its shape {dims:?}"))
    })?;
    let name = serde_json::to_string(&spec.name).map_err(|error| wrong(error.to_string()))?;
    let datatype = spec.datatype;
    Ok(format!(
        r#"{{"name":{name},"datatype":"{datatype}","shape":{shape:?},"data":[{}]}}"#,
        elements.join(",")
    ))
}

/// The values of lists in lists, in order.
fn flatten<'a>(value: &'a RawValue, elements: &mut Vec<&'a str>) -> Result<(), serde_json::Error> {
    if !value.get().starts_with('[') {
        elements.push(value.get());
        return Ok(());
    }
    let list: Vec<&'a RawValue> = serde_json::from_str(value.get())?;
    list.into_iter().try_for_each(|inner| flatten(inner, elements))
}

#[derive(Deserialize)]
struct Printed<'a> {
    #[serde(borrow)]
    outputs: Vec<PrintedOutput<'a>>,
}

#[derive(Deserialize)]
struct PrintedOutput<'a> {
    name: String,
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

/// A response as a flat object. An output of one element is that element.
pub fn flat(response: &InferResponse) -> Result<Vec<u8>, Refusal> {
    let internal = |error: serde_json::Error| Refusal::new(Reason::Internal, format!("response: {error}"));
    let printed = oip::json::encode_infer(response, false)?;
    let printed: Printed<'_> = serde_json::from_slice(&printed.head).map_err(internal)?;
    let mut members: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    for PrintedOutput { name, data } in printed.outputs {
        let value = match data.as_slice() {
            [one] => (*one).to_owned(),
            list => serde_json::value::to_raw_value(list).map_err(internal)?,
        };
        members.insert(name, value);
    }
    let mut own = Map::from_iter([
        ("model_name".to_owned(), Value::from(response.model_name.as_str())),
        ("model_version".to_owned(), Value::from(response.model_version.as_str())),
    ]);
    if !response.id.is_empty() {
        own.insert("id".to_owned(), Value::from(response.id.as_str()));
    }
    for (name, value) in own {
        members.insert(name, serde_json::value::to_raw_value(&value).map_err(internal)?);
    }
    serde_json::to_vec(&members).map_err(internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::Datatype;

    fn tensor(dims: &[Dim], text: &str) -> Result<String, String> {
        let spec = TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Fp32,
            dims: dims.to_vec(),
            optional: false,
        };
        let value = RawValue::from_string(text.to_owned()).unwrap();
        input(&spec, &value).map_err(|refusal| refusal.message)
    }

    #[test]
    fn the_last_free_dimension_takes_what_the_fixed_ones_leave() {
        use Dim::{Fixed, Free};
        let shape = |dims: &[Dim], text| {
            let tensor = tensor(dims, text)?;
            let parsed: Value = serde_json::from_str(&tensor).unwrap();
            Ok::<_, String>(
                parsed["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(shape(&[Free, Free], "[1,2,3]"), Ok(vec![1, 3]));
        assert_eq!(shape(&[Free, Fixed(2)], "[1,2,3,4]"), Ok(vec![2, 2]));
        assert_eq!(shape(&[Free], "7"), Ok(vec![1]));
        assert_eq!(shape(&[Fixed(2), Free, Free], "[1,2,3,4]"), Ok(vec![2, 1, 2]));
        assert_eq!(shape(&[], "7"), Ok(vec![]));
        for (dims, text) in [(&[Fixed(2)][..], "[1,2,3]"), (&[Fixed(2)], "[1,2,3,4]"), (&[], "[1,2]")] {
            let message = shape(dims, text).unwrap_err();
            assert!(message.contains("do not fill its shape"), "{message}");
        }
        assert_eq!(shape(&[Free, Free], "[[1,2],[3,4]]"), Ok(vec![1, 4]));
        for text in ["{}", "null", "[{}]"] {
            let message = tensor(&[Free], text).unwrap_err();
            assert!(message.ends_with("expected one value or a list of values"), "{message}");
        }
    }
}
