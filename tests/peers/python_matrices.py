"""Resident matrices and streams with a generated client, Python's.

Uploads a matrix over two streams with its digest, brings rows back, multiplies
with it by name, keeps a product, adds to it twice under one request id, and
pipelines products on one stream. Everything is held against NumPy.

  python_matrices.py --protos proto --protoc protoc --server 127.0.0.1:50051
"""

import argparse
import hashlib
import tempfile

import grpc
import numpy as np

from python_client import generate, operand

SERVICE = "/gemmd.v1.GemmService/"
CHUNK = 1 << 20


class Matrices:
    """The part of the generated stub that is about matrices and streams."""

    def __init__(self, channel):
        from gemmd.v1 import matrix_pb2, sgemm_pb2
        calls = (
            ("sgemm", channel.unary_unary, "Sgemm", sgemm_pb2.SgemmRequest,
             sgemm_pb2.SgemmResponse),
            ("stream", channel.stream_stream, "SgemmStream",
             sgemm_pb2.SgemmStreamRequest, sgemm_pb2.SgemmStreamResponse),
            ("upload", channel.stream_unary, "UploadMatrix",
             matrix_pb2.UploadMatrixRequest, matrix_pb2.UploadMatrixResponse),
            ("download", channel.unary_stream, "DownloadMatrix",
             matrix_pb2.DownloadMatrixRequest,
             matrix_pb2.DownloadMatrixResponse),
            ("list", channel.unary_unary, "ListMatrices",
             matrix_pb2.ListMatricesRequest, matrix_pb2.ListMatricesResponse),
            ("delete", channel.unary_unary, "DeleteMatrix",
             matrix_pb2.DeleteMatrixRequest, matrix_pb2.DeleteMatrixResponse))
        for name, kind, method, request, response in calls:
            setattr(self, name, kind(
                SERVICE + method, request_serializer=request.SerializeToString,
                response_deserializer=response.FromString))


def digest(packed):
    blocks = (packed[at:at + CHUNK] for at in range(0, len(packed), CHUNK))
    return hashlib.sha256(
        b"".join(hashlib.sha256(block).digest() for block in blocks)).digest()


def upload_messages(matrix, matrix_id, first_row, row_count):
    from gemmd.v1 import matrix_pb2
    yield matrix_pb2.UploadMatrixRequest(header=matrix_pb2.UploadHeader(
        rows=matrix.shape[0], cols=matrix.shape[1], matrix_id=matrix_id,
        digest=digest(matrix.tobytes()), first_row=first_row,
        row_count=row_count))
    packed = matrix[first_row:first_row + row_count].tobytes()
    for at in range(0, len(packed), CHUNK):
        yield matrix_pb2.UploadMatrixRequest(chunk=packed[at:at + CHUNK])


def download(service, matrix_id, first_row=0, row_count=0):
    from gemmd.v1 import matrix_pb2
    messages = service.download(matrix_pb2.DownloadMatrixRequest(
        matrix_id=matrix_id, first_row=first_row, row_count=row_count),
        timeout=60)
    header = next(messages).header
    packed = b"".join(message.chunk for message in messages)
    return np.frombuffer(packed, "<f4").reshape(header.row_count, header.cols)


def resident(matrix_id, shape):
    from gemmd.v1 import sgemm_pb2
    return sgemm_pb2.Operand(rows=shape[0], cols=shape[1], matrix_id=matrix_id)


def kept(matrix_id):
    from gemmd.v1 import sgemm_pb2
    return sgemm_pb2.Output(
        resident=sgemm_pb2.ResidentOutput(matrix_id=matrix_id))


def check_close(name, got, wanted):
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert error <= 1e-5, f"{name}: off by {error} relative to NumPy"
    print(f"{name}: {got.shape[0]} x {got.shape[1]}, error {error:.1e}")


def check_upload(service, b):
    """Two streams, one matrix; then a second name for nothing."""
    half = b.shape[0] // 2
    first = service.upload(upload_messages(b, "b", 0, half), timeout=60)
    assert not first.complete
    rest = upload_messages(b, "b", half, b.shape[0] - half)
    assert service.upload(rest, timeout=60).complete
    again = service.upload(upload_messages(b, "b2", 0, b.shape[0]), timeout=60)
    assert again.complete and again.already_held
    assert (download(service, "b2") == b).all()
    assert (download(service, "b", 3, 5) == b[3:8]).all()
    print("upload: whole in two streams, held already under another name")


def check_products(service, a, b):
    from gemmd.v1 import matrix_pb2, sgemm_pb2
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    response = service.sgemm(sgemm_pb2.SgemmRequest(
        a=operand(a), b=resident("b", b.shape), output=kept("ab")), timeout=60)
    assert response.matrix_id == "ab" and not response.c
    check_close("resident product", download(service, "ab"), wanted)
    for replayed in (False, True):
        response = service.sgemm(sgemm_pb2.SgemmRequest(
            a=operand(a), b=resident("b", b.shape), beta=1,
            c=resident("ab", wanted.shape), output=kept("ab"),
            request_id="add once"), timeout=60)
        assert response.execution.replayed == replayed
    check_close("added once", download(service, "ab"), 2 * wanted)
    listed = service.list(matrix_pb2.ListMatricesRequest(), timeout=60)
    assert [m.matrix_id for m in listed.matrices] == ["ab", "b", "b2"], listed
    for matrix in listed.matrices:
        service.delete(matrix_pb2.DeleteMatrixRequest(
            matrix_id=matrix.matrix_id), timeout=60)


def check_stream(service, rng):
    """Products of many shapes, and one that makes no sense, on one stream."""
    from gemmd.v1 import sgemm_pb2
    products = {}
    for sequence in range(1, 41):
        m, n, k = rng.integers(1, 200, 3)
        products[sequence] = (rng.uniform(-1, 1, (m, k)).astype(np.float32),
                              rng.uniform(-1, 1, (k, n)).astype(np.float32))
    products[41] = (np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))

    def requests():
        for sequence, (a, b) in list(products.items()):
            yield sgemm_pb2.SgemmStreamRequest(
                sequence=sequence,
                request=sgemm_pb2.SgemmRequest(a=operand(a), b=operand(b)))

    answered = 0
    for answer in service.stream(requests(), timeout=60):
        a, b = products.pop(answer.sequence)
        if a.shape[1] != b.shape[0]:
            assert answer.error.code == 3, answer  # INVALID_ARGUMENT
            continue
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        got = np.frombuffer(answer.response.c, "<f4").reshape(wanted.shape)
        bound = (a.shape[1] + 4) * 2.0**-24 * (np.abs(a) @ np.abs(b)) + 1e-37
        assert (np.abs(got - wanted) <= bound).all(), answer.sequence
        answered += 1
    assert answered == 40 and not products
    print(f"stream: {answered} products right, one refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--protos", "--protoc", "--server"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    rng = np.random.default_rng()
    a = rng.uniform(-1, 1, (50, 700)).astype(np.float32)
    b = rng.uniform(-1, 1, (700, 900)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        generate(options.protoc, options.protos, folder)
        with grpc.insecure_channel(options.server, options=[
                ("grpc.max_receive_message_length", -1)]) as channel:
            service = Matrices(channel)
            check_upload(service, b)
            check_products(service, a, b)
            check_stream(service, rng)


if __name__ == "__main__":
    main()
