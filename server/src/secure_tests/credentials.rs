//! Keys, tokens and roles, over HTTP and gRPC alike.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use node::bundled::SAMPLE;
use oip::proto as pb;
use serde_json::{Value, json};
use tonic::{Code, Request};

use super::client::{INFER, LOAD, Trust};
use super::server::{AUDIENCE, ISSUER, Server};

/// A request to the bundled model.
fn sample(credential: Option<&str>) -> Request<pb::ModelInferRequest> {
    let request: Value = serde_json::from_str(SAMPLE).unwrap();
    let pixels = request["inputs"][0]["data"].as_array().unwrap();
    let raw: Vec<u8> =
        pixels.iter().flat_map(|pixel| (pixel.as_f64().unwrap() as f32).to_le_bytes()).collect();
    with(
        credential,
        pb::ModelInferRequest {
            model_name: "digits".to_owned(),
            inputs: vec![pb::model_infer_request::InferInputTensor {
                name: "image".to_owned(),
                datatype: "FP32".to_owned(),
                shape: vec![1, 64],
                ..Default::default()
            }],
            raw_input_contents: vec![raw.into()],
            ..Default::default()
        },
    )
}

fn with<T>(credential: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(credential) = credential {
        request.metadata_mut().insert("authorization", format!("Bearer {credential}").parse().unwrap());
    }
    request
}

#[tokio::test(flavor = "current_thread")]
async fn keys_decide_what_a_caller_may_do_over_http() {
    let server = Server::start().await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let mut http = trust.http(server.http).await;
    let mut admin = trust.http(server.admin).await;
    let key = |key: &str| format!("authorization: Bearer {key}");
    let (infer, read, operate) = (key(&server.infer.key), key(&server.read.key), key(&server.operate.key));
    let post = |path: &str| format!("POST {path}");

    let answer = http.ask(&post(INFER), &[&infer], SAMPLE).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        http.ask(&post(INFER), &[&format!("x-api-key: {}", server.infer.key)], SAMPLE).await.status,
        200
    );
    let missing = http.ask(&post(INFER), &[], SAMPLE).await;
    assert_eq!(missing.status, 401);
    assert!(
        missing.has("www-authenticate: Bearer") && missing.has("x-tessera-reason: unauthenticated"),
        "{missing:?}"
    );
    assert!(missing.body.contains("credentials are missing: expected the header"), "{missing:?}");
    let unknown = http.ask(&post(INFER), &[&key("tsk_unknown")], SAMPLE).await;
    assert!(unknown.status == 401 && !unknown.body.contains("tsk_unknown"), "{unknown:?}");
    let low = http.ask(&post(INFER), &[&read], SAMPLE).await;
    assert!(low.status == 403 && low.body.contains("this path needs role infer"), "{low:?}");
    assert_eq!(http.ask(&post("/v2/models/digits/generate"), &[&read], "{}").await.status, 403);

    for (path, credential, status) in [
        ("GET /v2/health/live", None, 200),
        ("GET /v2/models/digits/ready", None, 200),
        ("GET /v2/models/digits", None, 401),
        ("GET /v2/models/digits", Some(&infer), 200),
        ("GET /v2/models/stats", Some(&read), 200),
        ("POST /v2/logging", Some(&infer), 403),
        ("GET /v2/lanes", Some(&operate), 404),
        ("POST /v2/partition/freeze", Some(&operate), 404),
        ("POST /v2/repository/models/digits/load", Some(&infer), 403),
        ("POST /v2/repository/models/digits/load", Some(&operate), 200),
        ("GET /v2/nowhere", None, 404),
    ] {
        let headers: Vec<&str> = credential.into_iter().map(String::as_str).collect();
        let answer = http.ask(path, &headers, "").await;
        assert_eq!(answer.status, status, "{path} {answer:?}");
    }
    for (path, credential, status) in [
        ("GET /v2/health/live", None, 200),
        ("GET /v2/lanes", None, 401),
        ("GET /v2/lanes", Some(&infer), 403),
        ("GET /v2/lanes", Some(&read), 200),
        ("GET /v2/models/stats", Some(&infer), 403),
        ("POST /v2/lanes/0/enable", Some(&read), 403),
        ("POST /v2/lanes/0/enable", Some(&operate), 200),
        ("POST /v2/models/digits/infer", Some(&operate), 404),
    ] {
        let headers: Vec<&str> = credential.into_iter().map(String::as_str).collect();
        let answer = admin.ask(path, &headers, "").await;
        assert_eq!(answer.status, status, "{path} {answer:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn keys_decide_what_a_caller_may_do_over_grpc() {
    let server = Server::start().await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let mut client = trust.grpc(server.grpc).await;
    let (infer, read, operate) = (&*server.infer.key, &*server.read.key, &*server.operate.key);
    client.model_infer(sample(Some(infer))).await.unwrap();
    let missing = client.model_infer(sample(None)).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    assert_eq!(missing.metadata().get("x-tessera-reason").unwrap(), "unauthenticated");
    let low = client.model_infer(sample(Some(read))).await.unwrap_err();
    assert_eq!((low.code(), low.message()), (Code::PermissionDenied, "this path needs role infer"));
    assert!(client.server_ready(pb::ServerReadyRequest {}).await.unwrap().into_inner().ready);
    assert_eq!(
        client.server_metadata(pb::ServerMetadataRequest {}).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    client.server_metadata(with(Some(read), pb::ServerMetadataRequest {})).await.unwrap();

    let load = || pb::RepositoryModelLoadRequest { model_name: "digits".to_owned(), ..Default::default() };
    assert_eq!(
        client.repository_model_load(with(Some(infer), load())).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    client.repository_model_load(with(Some(operate), load())).await.unwrap();
    // The same method reads and changes settings.
    client.log_settings(with(Some(infer), pb::LogSettingsRequest::default())).await.unwrap();
    let value = pb::log_settings_request::SettingValue {
        parameter_choice: Some(pb::log_settings_request::setting_value::ParameterChoice::BoolParam(true)),
    };
    let change = || pb::LogSettingsRequest { settings: [("log_info".to_owned(), value.clone())].into() };
    let refused = client.log_settings(with(Some(infer), change())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut stream = client
        .model_stream_infer(with(Some(infer), tokio_stream::iter([sample(None).into_inner()])))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().error_message, "");
    let refused = client.model_stream_infer(with(Some(read), tokio_stream::empty())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "current_thread")]
async fn tokens_are_checked_the_same_way_over_both() {
    let server = Server::start().await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let (mut http, mut client) = (trust.http(server.http).await, trust.grpc(server.grpc).await);
    let now = get_current_timestamp();
    let claims = |audience: &str, expires: u64| json!({ "iss": ISSUER, "aud": audience, "exp": expires, "role": "infer", "tenant": "search", "sub": "svc" });
    let sign = |claims: &Value| encode(&Header::new(Algorithm::ES256), claims, &server.signer).unwrap();
    let good = sign(&claims(AUDIENCE, now + 600));
    let payload = good.split('.').nth(1).unwrap();
    let symmetric = EncodingKey::from_secret(b"secret");
    for (name, token, status, message) in [
        ("valid", good.clone(), 200, ""),
        ("expired", sign(&claims(AUDIENCE, now - 60)), 401, "the token has expired"),
        ("audience", sign(&claims("other", now + 600)), 401, "credentials are not accepted"),
        // {"alg":"none"}
        ("unsigned", format!("eyJhbGciOiJub25lIn0.{payload}."), 401, "credentials are not accepted"),
        (
            "symmetric",
            encode(&Header::new(Algorithm::HS256), &claims(AUDIENCE, now + 600), &symmetric).unwrap(),
            401,
            "credentials are not accepted",
        ),
    ] {
        let answer =
            http.ask(&format!("POST {INFER}"), &[&format!("authorization: Bearer {token}")], SAMPLE).await;
        assert!(answer.status == status && answer.body.contains(message), "{name} {answer:?}");
        let over_grpc = client.model_infer(sample(Some(&token))).await;
        match over_grpc {
            Ok(_) => assert_eq!(status, 200, "{name}"),
            Err(refused) => {
                assert_eq!((refused.code(), status), (Code::Unauthenticated, 401), "{name}");
                assert!(refused.message().starts_with(message), "{refused:?}");
            }
        }
    }
    let low = http.ask(&format!("POST {LOAD}"), &[&format!("authorization: Bearer {good}")], "").await;
    assert_eq!(low.status, 403, "{low:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn the_admin_listener_answers_no_page_of_another_site() {
    let server = Server::start().await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let mut admin = trust.http(server.admin).await;
    let key = format!("authorization: Bearer {}", server.operate.key);
    let own = format!("host: {}", server.admin);
    let same = format!("origin: https://{}", server.admin);
    for (headers, status) in [
        (vec!["host: rebound.example"], 403),
        (vec!["host: localhost.rebound.example"], 403),
        (vec![&*own, "origin: https://evil.example"], 403),
        (vec![&*own, "origin: null"], 403),
        (vec![&*own, &*same], 200),
        (vec!["host: localhost"], 200),
    ] {
        let headers: Vec<&str> = headers.into_iter().chain([&*key]).collect();
        let answer = admin.ask("GET /v2/lanes", &headers, "").await;
        assert_eq!(answer.status, status, "{headers:?} {answer:?}");
        assert_eq!(answer.has("x-tessera-reason: host_refused"), status == 403);
    }
    // The inference listener is reached under any name, as behind a load balancer.
    let mut http = trust.http(server.http).await;
    assert_eq!(http.ask("GET /v2", &["host: models.example", &key], "").await.status, 200);
}
