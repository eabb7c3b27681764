//! Generates the service from its description, without `protoc`.

fn main() {
    let description = protox::compile(["bare.proto"], ["."]).expect("the description is valid");
    tonic_prost_build::configure().build_client(false).compile_fds(description).expect("the code is made");
}
