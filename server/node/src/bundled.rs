//! The bundled model: a digit classifier to try the server with.

/// Name of the model.
pub const NAME: &str = "digits";
/// Its only version.
pub const VERSION: u64 = 1;
/// The ONNX graph, with learned weights.
pub const MODEL: &[u8] = include_bytes!("../../../models/bundled/digits/1/model.onnx");
/// Its `config.pbtxt`.
pub const CONFIG: &str = include_str!("../../../models/bundled/digits/config.pbtxt");
/// Labels of the classes, one per line.
pub const LABELS: &str = include_str!("../../../models/bundled/digits/labels.txt");
/// A request with a real handwritten digit.
pub const SAMPLE: &str = include_str!("../../../models/bundled/digits/sample.json");

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_sample_is_a_request_for_the_model() {
        let body = Bytes::from_static(SAMPLE.as_bytes());
        let request = oip::json::decode_infer(NAME, None, &body, None, &oip::Limits::default()).unwrap();
        assert_eq!(request.inputs.len(), 1);
        assert_eq!(request.inputs[0].shape.extents(), [1, 64]);
        assert_eq!(LABELS.lines().count(), 10);
        assert!(CONFIG.contains(NAME) && MODEL.len() < 300_000);
    }
}
