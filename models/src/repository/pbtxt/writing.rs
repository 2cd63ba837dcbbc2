//! The text of a `config.pbtxt`.

use oip::proto::ModelConfig;
use prost_reflect::DynamicMessage;
use prost_reflect::text_format::FormatOptions;

use super::descriptor;

/// A configuration as the text of a `config.pbtxt`. `max_batch_size` is always there, because 0 differs from what is left out.
///
/// # Errors
/// The program lacks the schema of the file.
pub fn config_text(config: &ModelConfig) -> Result<String, String> {
    let descriptor = descriptor().ok_or("the program lacks the schema of this file")?;
    let mut message = DynamicMessage::new(descriptor);
    message.transcode_from(config).map_err(|error| error.to_string())?;
    let mut text = message.to_text_format_with_options(&FormatOptions::new().pretty(true));
    text.push('\n');
    if config.max_batch_size == 0 {
        text.push_str("max_batch_size: 0\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelName;
    use crate::repository::Pbtxt;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let name = ModelName::new("m").unwrap();
        let text = r#"name: "m" backend: "onnxruntime" max_batch_size: 0 parameters { key: "a\"b" value { string_value: "x\ny" } }
            input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } instance_group { count: 2 kind: KIND_CPU }"#;
        let read = Pbtxt::parse(&name, text, true).unwrap();
        let again = Pbtxt::parse(&name, &config_text(&read.source).unwrap(), true).unwrap();
        assert_eq!((again.source, again.max_batch), (read.source, Some(0)));
    }
}
