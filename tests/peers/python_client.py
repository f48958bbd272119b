"""Any generated client will do: Python's, made from the .proto files by protoc.

Multiplies the digits by their transpose on a running server, holds the product
against NumPy's (1e-5 relative at most) and against the C++ client's (the same
bits), and sees that an error's details arrive.

  python_client.py --protos proto --protoc protoc --server 127.0.0.1:50051 \
      --gemmctl build/dev/bin/gemmctl --matrix client/examples/digits/digits.npy
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import grpc
import numpy as np

PROTOS = ("gemmd/v1/sgemm.proto", "gemmd/v1/matrix.proto",
          "gemmd/v1/server_info.proto", "google/rpc/status.proto",
          "google/rpc/error_details.proto")


def generate(protoc, protos, folder):
    """Python's messages; the calls need no generated code."""
    subprocess.run([protoc, f"--proto_path={protos}", f"--python_out={folder}",
                    *PROTOS], check=True)
    sys.path.insert(0, str(folder))


class GemmService:
    """The stub that a gRPC plugin would generate, as far as it is needed."""

    def __init__(self, channel):
        from gemmd.v1 import server_info_pb2, sgemm_pb2
        self.sgemm = channel.unary_unary(
            "/gemmd.v1.GemmService/Sgemm",
            request_serializer=sgemm_pb2.SgemmRequest.SerializeToString,
            response_deserializer=sgemm_pb2.SgemmResponse.FromString)
        self.get_server_info = channel.unary_unary(
            "/gemmd.v1.GemmService/GetServerInfo",
            request_serializer=(
                server_info_pb2.GetServerInfoRequest.SerializeToString),
            response_deserializer=(
                server_info_pb2.GetServerInfoResponse.FromString))


def operand(matrix):
    from gemmd.v1 import sgemm_pb2
    return sgemm_pb2.Operand(rows=matrix.shape[0], cols=matrix.shape[1],
                             data=matrix.astype("<f4").tobytes())


def multiply(service, a, b, **fields):
    from gemmd.v1 import sgemm_pb2
    response = service.sgemm(
        sgemm_pb2.SgemmRequest(a=operand(a), b=operand(b), **fields),
        timeout=60)
    product = np.frombuffer(response.c, "<f4")
    return product.reshape(response.rows, response.cols), response.execution


def check_product(service, options):
    """The digits' similarities, three ways; and random numbers, two ways."""
    digits = np.load(options.matrix)
    noise = np.random.default_rng().uniform(-1, 1, digits.shape)
    noise = noise.astype(np.float32)
    for name, matrix in (("digits", digits), ("random numbers", noise)):
        product, execution = multiply(service, matrix, matrix,
                                      transpose_b=True)
        expected = matrix.astype(np.float64) @ matrix.astype(np.float64).T
        error = np.abs(product - expected).max() / np.abs(expected).max()
        assert error <= 1e-5, f"{name}: off by {error} relative to NumPy"
        other = from_gemmctl(options, matrix)
        assert other.tobytes() == product.tobytes(), \
            f"{name}: the C++ client got other bits"
        print(f"{name}: {product.shape[0]} x {product.shape[1]}, kernel "
              f"{execution.kernel}, error {error:.1e}, bits equal")


def from_gemmctl(options, matrix):
    with tempfile.TemporaryDirectory() as folder:
        operand_file = pathlib.Path(folder, "x.npy")
        product_file = pathlib.Path(folder, "product.npy")
        np.save(operand_file, matrix)
        subprocess.run([options.gemmctl, "multiply", operand_file,
                        operand_file, "--transpose-b", "-o", product_file,
                        "--server", options.server],
                       check=True, capture_output=True)
        return np.load(product_file)


def check_error(service):
    """A request that makes no sense names the field, with its details."""
    from google.rpc import error_details_pb2, status_pb2
    ones = np.ones((2, 3), np.float32)
    try:
        multiply(service, ones, ones)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        trailer = dict(error.trailing_metadata())
        status = status_pb2.Status.FromString(
            trailer["grpc-status-details-bin"])
        assert status.message == error.details()
        detail = error_details_pb2.BadRequest()
        assert status.details[0].Unpack(detail), status
        print("error:", detail.field_violations[0].field, "-",
              error.details())
    else:
        raise AssertionError("a product of 2 x 3 and 2 x 3 was answered")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--protos", "--protoc", "--server", "--gemmctl", "--matrix"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        generate(options.protoc, options.protos, folder)
        with grpc.insecure_channel(options.server, options=[
                ("grpc.max_receive_message_length", -1)]) as channel:
            service = GemmService(channel)
            from gemmd.v1 import server_info_pb2
            info = service.get_server_info(
                server_info_pb2.GetServerInfoRequest(), timeout=60)
            print(f"gemmd {info.version}, backend {info.backend}, "
                  f"{len(info.kernels)} kernels")
            check_product(service, options)
            check_error(service)


if __name__ == "__main__":
    main()
