//! Requests through the whole REST stack, without a socket.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::testing;

const BOUND: std::time::Duration = std::time::Duration::from_secs(20);

struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn read(response: Response<HttpBody>) -> Answer {
    let (parts, body) = response.into_parts();
    let exact = hyper::body::Body::size_hint(&body).exact();
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!(exact, Some(body.len() as u64), "the length is known and true");
    Answer { status: parts.status, headers: parts.headers, body }
}

async fn ask(
    service: &HttpService,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    read(service.clone().answer(request).await).await
}

async fn get(service: &HttpService, path: &str) -> Answer {
    ask(service, Method::GET, path, &[], b"").await
}

async fn post(service: &HttpService, path: &str, body: &str) -> Answer {
    ask(service, Method::POST, path, &[], body.as_bytes()).await
}

#[tokio::test(flavor = "current_thread")]
async fn unknown_paths_and_methods_are_answered_in_json() {
    let service = HttpService::new(testing::front().await);
    for path in [
        "/",
        "/v2/",
        "/v2/nope",
        "/v2/models",
        "/v2/models/m/",
        "/v2/models/m/nope",
        "/metrics",
        "/v2/models/a%ff",
    ] {
        let answer = get(&service, path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.error().is_empty() && answer.header("x-request-id").is_some(), "{path}");
    }
    for (method, path, allowed) in [
        (Method::PUT, "/v2", "GET,HEAD"),
        (Method::GET, "/v2/models/m/infer", "POST"),
        (Method::DELETE, "/v2/models/m/versions/1/infer", "POST"),
        (Method::GET, "/v2/repository/index", "POST"),
        (Method::POST, "/v2/health/live", "GET,HEAD"),
    ] {
        let answer = ask(&service, method.clone(), path, &[], b"").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        assert_eq!(answer.headers[ALLOW], allowed, "{method} {path}");
        assert!(answer.error().contains(method.as_str()));
        assert_eq!(answer.header("x-tessera-reason"), Some("method_not_allowed"));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn the_server_tells_who_it_is() {
    let service = HttpService::new(testing::front().await);
    let answer = get(&service, "/v2?x=1").await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, Some("application/json")));
    assert_eq!(answer.json()["name"], "tessera");
    let extensions = answer.json()["extensions"].to_string();
    for extension in
        ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"]
    {
        assert!(extensions.contains(extension), "{extension}");
    }
    assert_eq!(get(&service, "/v2/health/live").await.status, StatusCode::OK);
    assert_eq!(get(&service, "/v2/trace/setting").await.json()["trace_level"], serde_json::json!(["OFF"]));
    assert_eq!(get(&service, "/v2/logging").await.json()["log_format"], "default");
    for (path, body, reason) in [
        ("/v2/trace/setting", r#"{"trace_file": "t.json"}"#, "unsupported"),
        ("/v2/trace/setting", r#"{"trace_level": ["TIMESTAMPS"]}"#, "malformed"),
        ("/v2/logging", r#"{"log_file": "/tmp/log"}"#, "unsupported"),
        ("/v2/logging", r#"{"log_info": 3}"#, "malformed"),
        ("/v2/logging", r#"{"log_verbose_level": -1}"#, "malformed"),
        ("/v2/logging", r#"{"nope": true}"#, "malformed"),
    ] {
        let refused = post(&service, path, body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(refused.header("x-tessera-reason"), Some(reason), "{body}");
    }
    assert_eq!(post(&service, "/v2/logging", "{}").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "current_thread")]
async fn unknown_models_are_404_and_not_ready() {
    let service = HttpService::new(testing::front().await);
    for path in
        ["/v2/models/nope", "/v2/models/nope/config", "/v2/models/nope/versions/7", "/v2/models/..%2fx"]
    {
        let answer = get(&service, path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.header("x-tessera-reason"), Some("unknown_model"), "{path}");
    }
    assert_eq!(get(&service, "/v2/models/nope/ready").await.status, StatusCode::BAD_REQUEST);
    let load = post(&service, "/v2/repository/models/nope/load", "").await;
    assert_eq!(load.status, StatusCode::NOT_FOUND, "{:?}", load.body);
}

#[tokio::test(flavor = "current_thread")]
async fn malformed_requests_name_the_mistake() {
    let service = HttpService::new(testing::serving_front().await);
    let infer = "/v2/models/digits/infer";
    for (headers, body, status, reason, word) in [
        (&[][..], "{bad", 400, "malformed", "request body"),
        (
            &[("inference-header-content-length", "x")],
            "{}",
            400,
            "malformed",
            "inference-header-content-length",
        ),
        (
            &[("inference-header-content-length", "-1")],
            "{}",
            400,
            "malformed",
            "inference-header-content-length",
        ),
        (
            &[("inference-header-content-length", "2"), ("inference-header-content-length", "2")],
            "{}",
            400,
            "malformed",
            "inference-header-content-length",
        ),
        (
            &[("inference-header-content-length", "+2")],
            "{}",
            400,
            "malformed",
            "inference-header-content-length",
        ),
        (&[("host", "a second one")], "{}", 400, "malformed", "host"),
        (&[("inference-header-content-length", "99")], "{}", 400, "malformed", ""),
        (&[("content-encoding", "br")], "{}", 400, "unsupported", "content-encoding"),
        (&[("content-encoding", "gzip")], "{}", 400, "malformed", "gzip"),
        (&[], "[]", 400, "malformed", "request body"),
        (&[], "", 400, "malformed", "request body"),
        (&[], "{\"inputs\":[{\"name\":\"x\"}]}", 400, "malformed", "inputs[0]"),
    ] {
        let answer = ask(&service, Method::POST, infer, headers, body.as_bytes()).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?} {body}: {:?}", answer.body);
        assert_eq!(answer.header("x-tessera-reason"), Some(reason), "{headers:?} {body}");
        assert!(answer.error().contains(word), "{headers:?} {body}: {}", answer.error());
    }
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(post(&service, infer, &deep).await.error().contains("nested deeper than 64"));
    let big = "x".repeat((1 << 20) + 1);
    let refused = post(&service, infer, &big).await;
    assert_eq!((refused.status.as_u16(), refused.header("x-tessera-reason")), (413, Some("body_too_large")));
    for path in ["/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/m/unload"] {
        assert_eq!(post(&service, path, "{bad").await.status, StatusCode::BAD_REQUEST, "{path}");
        // A load may bring files.
        let too_long = if path.ends_with("/load") { &big } else { &"x".repeat(100_000) };
        assert_eq!(post(&service, path, too_long).await.status.as_u16(), 413, "{path}");
    }
    let parameters =
        post(&service, "/v2/repository/models/m/load", "{\"parameters\":{\"configuration\":\"{}\"}}").await;
    assert!(
        parameters.error().starts_with("parameters.configuration: not supported"),
        "{}",
        parameters.error()
    );
}

#[tokio::test(flavor = "current_thread")]
async fn versions_are_whole_numbers_in_digits() {
    let service = HttpService::new(testing::serving_front().await);
    for version in ["+1", "01", "", "%2b1", "1.0"] {
        for path in ["infer", "ready", "config", "stats"] {
            let path = format!("/v2/models/digits/versions/{version}/{path}");
            let method = if path.ends_with("infer") { Method::POST } else { Method::GET };
            let answer = ask(&service, method, &path, &[], node::bundled::SAMPLE.as_bytes()).await;
            assert!([400, 404].contains(&answer.status.as_u16()), "{path}: {}", answer.status);
        }
        let path = format!("/v2/models/digits/versions/{version}");
        assert_eq!(get(&service, &path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn http_1_1_requires_a_host_and_http_1_0_does_not() {
    let service = HttpService::new(testing::front().await);
    for (version, status) in [(Version::HTTP_11, 400), (Version::HTTP_10, 200), (Version::HTTP_2, 200)] {
        let request = Request::get("/v2/health/live").version(version).body(Full::new(Bytes::new())).unwrap();
        let answer = read(service.clone().answer(request).await).await;
        assert_eq!(answer.status.as_u16(), status, "{version:?}: {:?}", answer.body);
    }
}

/// The status of each answer on a connection, after which the server must have closed it.
async fn statuses(service: &HttpService, sent: &[u8]) -> Vec<String> {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let answering = service.clone();
    let answer = crate::listener::service(move |request| answering.clone().answer(request));
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(hyper_util::rt::TokioIo::new(server), answer);
    let serving = tokio::spawn(connection);
    client.write_all(sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut received = Vec::new();
    tokio::time::timeout(BOUND, client.read_to_end(&mut received)).await.expect("closed").unwrap();
    let _ = serving.await.unwrap();
    let text = String::from_utf8_lossy(&received).into_owned();
    text.lines().filter_map(|line| Some(line.strip_prefix("HTTP/1.1 ")?[..3].to_owned())).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn bodies_that_end_early_or_are_badly_framed_are_malformed() {
    let service = HttpService::new(testing::serving_front().await);
    for path in ["/v2/models/digits/infer", "/v2/repository/index"] {
        let chunked = format!("POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
        let sized = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n");
        for body in ["ZZZ\r\n", "ffffffffffffffffff\r\n", "5\r\nhelloX\r\n", "5\r\nhel", "5\r\nhello\r\n", ""]
        {
            assert_eq!(statuses(&service, format!("{chunked}{body}").as_bytes()).await, ["400"], "{body}");
        }
        for body in ["half", ""] {
            assert_eq!(statuses(&service, format!("{sized}{body}").as_bytes()).await, ["400"], "{body}");
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn readiness_names_the_model_that_failed_unless_it_is_not_strict() {
    let repository = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(repository.path().join("broken/1")).unwrap();
    std::fs::write(repository.path().join("broken/1/model.onnx"), b"not an ONNX file").unwrap();
    let path = repository.path().to_str().unwrap();
    for (strict, status) in [("true", 400), ("false", 200)] {
        let options = [("repository.path", path), ("server.strict_readiness", strict)];
        let front = testing::front_with(testing::limits(), &options).await;
        let service = HttpService::new(Arc::clone(&front));
        let starting = get(&service, "/v2/health/ready").await;
        assert_eq!(starting.status.as_u16(), status, "{:?}", starting.body);
        front.service.node.load_at_start().await;
        let answer = get(&service, "/v2/health/ready").await;
        assert_eq!(answer.status.as_u16(), status, "{:?}", answer.body);
        if strict == "true" {
            assert!(starting.error().contains("starting"), "{}", starting.error());
            let error = answer.error();
            assert!(error.contains("`broken`") && error.contains("not a complete ONNX file"), "{error}");
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn ids_of_clients_come_back() {
    let service = HttpService::new(testing::front().await);
    let sent = [("x-request-id", "abc")];
    assert_eq!(ask(&service, Method::GET, "/v2", &sent, b"").await.header("x-request-id"), Some("abc"));
    assert_eq!(ask(&service, Method::GET, "/nope", &sent, b"").await.header("x-request-id"), Some("abc"));
    assert_eq!(
        ask(&service, Method::POST, "/v2/models/m/infer", &sent, b"").await.header("x-request-id"),
        Some("abc")
    );
    assert!(get(&service, "/v2").await.header("x-request-id").is_some());
    let unsafe_id = [("x-request-id", "a b")];
    assert_ne!(
        ask(&service, Method::GET, "/nope", &unsafe_id, b"").await.header("x-request-id"),
        Some("a b")
    );
}

#[tokio::test(flavor = "current_thread")]
async fn an_unknown_model_is_reported_before_its_body_is_checked() {
    let service = HttpService::new(testing::serving_front().await);
    for path in ["/v2/models/nope/infer", "/v2/models/digits/versions/9/infer"] {
        for body in ["", "{", r#"{"inputs": [{"name": "image"}]}"#] {
            let refused = post(&service, path, body).await;
            assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path} {body}: {}", refused.error());
        }
    }
    assert_eq!(post(&service, "/v2/models/digits/infer", "{").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "current_thread")]
async fn a_drain_refuses_and_says_when_to_come_back() {
    let front = testing::front().await;
    let service = HttpService::new(Arc::clone(&front));
    front.begin_drain();
    let body = node::bundled::SAMPLE;
    let refused = post(&service, "/v2/models/digits/infer", body).await;
    assert_eq!((refused.status.as_u16(), refused.header("x-tessera-reason")), (503, Some("draining")));
    assert_eq!(refused.headers[RETRY_AFTER], "1");
    assert_eq!(refused.header("connection"), Some("close"));
    assert_eq!(get(&service, "/v2/health/ready").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(get(&service, "/v2/health/live").await.status, StatusCode::OK);
    front.idle().await;
    assert_eq!(front.in_flight(), 0);
}

#[tokio::test(flavor = "current_thread")]
async fn a_page_that_follows_the_server_does_not_delay_a_drain() {
    let front = testing::front().await;
    front.activity.look(&front.service.node).await;
    let pages = front.viewers.available_permits();
    let request = Request::get("/v2/activity/events").header(HOST, "localhost").body(Full::new(Bytes::new()));
    let response = HttpService::new(Arc::clone(&front)).answer(request.unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"data: "), "{first:?}");
    front.begin_drain();
    tokio::time::timeout(BOUND, body.collect()).await.expect("the stream ends in time").unwrap();
    assert_eq!(front.viewers.available_permits(), pages, "the stream ended without another look");
}

#[tokio::test(flavor = "current_thread")]
async fn regions_are_registered_over_rest() {
    let service = HttpService::new(testing::front().await);
    assert_eq!(get(&service, "/v2/systemsharedmemory/status").await.json(), serde_json::json!([]));
    assert_eq!(get(&service, "/v2/systemsharedmemory/region/r/status").await.status, StatusCode::NOT_FOUND);
    for (body, word) in [
        ("{\"offset\":0}", "`key` is missing"),
        ("{\"key\":\"/x\"}", "`byte_size` is missing"),
        ("{\"key\":\"/no-such-object\",\"byte_size\":4}", "cannot open"),
        ("{\"key\":\"/x\",\"byte_size\":-4}", "request body"),
    ] {
        let refused = post(&service, "/v2/systemsharedmemory/region/r/register", body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert!(refused.error().contains(word), "{}", refused.error());
    }
    assert_eq!(post(&service, "/v2/systemsharedmemory/region/r/unregister", "").await.status, StatusCode::OK);
    assert_eq!(post(&service, "/v2/systemsharedmemory/unregister", "").await.status, StatusCode::OK);
    assert_eq!(get(&service, "/v2/cudasharedmemory/status").await.json(), serde_json::json!([]));
    let cuda = post(&service, "/v2/cudasharedmemory/region/r/register", "{}").await;
    assert_eq!(cuda.header("x-tessera-reason"), Some("unsupported"));
}

#[tokio::test(flavor = "current_thread")]
async fn the_bundled_model_reads_its_sample_and_tells_its_timing() {
    let service = HttpService::new(testing::serving_front().await);
    let answer = post(&service, "/v2/models/digits/infer", node::bundled::SAMPLE).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert_eq!(answer.headers[CONTENT_TYPE], "application/json");
    for header in
        ["x-tessera-queue-us", "x-tessera-batch-wait-us", "x-tessera-compute-us", "x-tessera-batch-rows"]
    {
        let value = answer.headers.get(HeaderName::from_static(header)).unwrap();
        assert!(value.to_str().unwrap().parse::<u64>().is_ok(), "{header}");
    }
    assert_eq!(answer.json()["id"], "digit");
    let ready = get(&service, "/v2/models/digits/versions/1/ready").await;
    assert_eq!(
        (ready.status, get(&service, "/v2/health/ready").await.status),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!(
        get(&service, "/v2/models/digits").await.json()["inputs"][0]["shape"],
        serde_json::json!([-1, 64])
    );
    let config = get(&service, "/v2/models/digits/config").await.json();
    assert_eq!((&config["name"], &config["input"][0]["dims"]), (&"digits".into(), &serde_json::json!([64])));
    let stats = get(&service, "/v2/models/digits/stats").await.json();
    assert_eq!(stats["model_stats"][0]["inference_count"], 1);
}

#[tokio::test(flavor = "current_thread")]
async fn raw_bodies_binary_answers_and_compression_agree_with_json() {
    let service = HttpService::new(testing::serving_front().await);
    let path = "/v2/models/digits/infer";
    let plain = post(&service, path, node::bundled::SAMPLE).await.json();
    let pixels: Vec<f32> = serde_json::from_str::<Value>(node::bundled::SAMPLE).unwrap()["inputs"][0]["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pixel| pixel.as_f64().unwrap() as f32)
        .collect();
    let raw: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let answer = ask(&service, Method::POST, path, &[("inference-header-content-length", "0")], &raw).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert_eq!(answer.headers[CONTENT_TYPE], "application/octet-stream");
    let json_length: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    let head: Value = serde_json::from_slice(&answer.body[..json_length]).unwrap();
    assert_eq!(answer.body.len() - json_length, 10 * 4 + 8, "ten probabilities and one i64");
    assert_eq!(head["model_name"], plain["model_name"]);

    let wide = node::bundled::SAMPLE.replace("\"outputs\"", "\"parameters\": {\"note\": true}, \"outputs\"");
    let packed =
        ask(&service, Method::POST, path, &[(ACCEPT_ENCODING.as_str(), "gzip")], wide.as_bytes()).await;
    assert_eq!(packed.status, StatusCode::OK);
    assert!(packed.headers.get(CONTENT_ENCODING).is_none(), "an answer this small is not worth packing");
}

#[tokio::test(flavor = "current_thread")]
async fn classes_come_with_their_labels() {
    let service = HttpService::new(testing::serving_front().await);
    let mut request: Value = serde_json::from_str(node::bundled::SAMPLE).unwrap();
    request["outputs"] = serde_json::json!([{"name": "probabilities", "parameters": {"classification": 2}}]);
    let answer = post(&service, "/v2/models/digits/infer", &request.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    let output = &answer.json()["outputs"][0];
    assert_eq!((&output["datatype"], &output["shape"]), (&"BYTES".into(), &serde_json::json!([1, 2])));
    let first = output["data"][0].as_str().unwrap();
    let parts: Vec<&str> = first.split(':').collect();
    let index: usize = parts[1].parse().unwrap();
    assert_eq!(parts[2], node::bundled::LABELS.lines().nth(index).unwrap(), "{first}");
}
