"""The server that a user would write in an afternoon: gemmd.v1.Sgemm in Python
with PyTorch, as plain as it gets. What gemmd is measured against.

Operands come inline, go to the GPU, are multiplied in FP32 (TF32 off) and the
product goes back; a pool of threads serves the calls. It speaks gemmd's wire
format, so that the same load generator drives both:

  peer_torch.py --descriptors gemmd.binpb --listen 127.0.0.1:50061
  gemmctl bench --server 127.0.0.1:50061 ...

--descriptors is what `protoc --include_imports --descriptor_set_out` makes of
proto/gemmd/v1/gemm_service.proto. --library numpy serves where there is no
PyTorch. Prints `grpc listening on HOST:PORT`, then serves until it is ended by
SIGTERM or SIGINT.
"""

import argparse
import concurrent.futures
import pathlib
import signal
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def load_messages(path):
    """name -> message class, of every message of gemmd.v1."""
    files = descriptor_pb2.FileDescriptorSet.FromString(
        pathlib.Path(path).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    if hasattr(message_factory, "GetMessageClass"):
        get_class = message_factory.GetMessageClass
    else:
        get_class = message_factory.MessageFactory(pool).GetPrototype
    return {
        message.name: get_class(
            pool.FindMessageTypeByName(f"{file.package}.{message.name}"))
        for file in files.file if file.package == "gemmd.v1"
        for message in file.message_type
    }


class TorchMultiplier:
    def __init__(self):
        import torch
        self.torch = torch
        torch.backends.cuda.matmul.allow_tf32 = False
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.name = f"PyTorch {torch.__version__} on {self.device}"

    def matrix(self, operand):
        data = self.torch.frombuffer(bytearray(operand.data),
                                     dtype=self.torch.float32)
        return data.view(operand.rows, operand.cols).to(self.device)

    def multiply(self, request):
        a, b = self.matrix(request.a), self.matrix(request.b)
        a = a.t() if request.transpose_a else a
        b = b.t() if request.transpose_b else b
        product = a @ b
        return product.shape, product.cpu().numpy().tobytes()


class NumpyMultiplier:
    def __init__(self):
        import numpy
        self.numpy = numpy
        self.name = f"NumPy {numpy.__version__} on cpu"

    def matrix(self, operand):
        data = self.numpy.frombuffer(operand.data, "<f4")
        return data.reshape(operand.rows, operand.cols)

    def multiply(self, request):
        a, b = self.matrix(request.a), self.matrix(request.b)
        a = a.T if request.transpose_a else a
        b = b.T if request.transpose_b else b
        product = a @ b
        return product.shape, product.tobytes()


MULTIPLIERS = {"torch": TorchMultiplier, "numpy": NumpyMultiplier}


def service(messages, multiplier):
    def sgemm(request, context):
        plain = (request.a.HasField("data") and request.b.HasField("data") and
                 not request.HasField("c"))
        if not plain:
            context.abort(grpc.StatusCode.UNIMPLEMENTED,
                          "this peer takes A and B inline and no C")
        start = time.perf_counter()
        (rows, cols), product = multiplier.multiply(request)
        answer = messages["SgemmResponse"](rows=rows, cols=cols, c=product)
        answer.execution.kernel = multiplier.name
        answer.execution.batch_size = 1
        answer.execution.compute_seconds = time.perf_counter() - start
        return answer

    def info(request, context):
        answer = messages["GetServerInfoResponse"](
            version="peer", build=multiplier.name, backend="peer")
        answer.limits.max_inline_bytes = 1 << 30
        answer.devices.add(name=multiplier.name)
        return answer

    def handler(method, request, response):
        return grpc.unary_unary_rpc_method_handler(
            method, request_deserializer=messages[request].FromString,
            response_serializer=messages[response].SerializeToString)

    return grpc.method_handlers_generic_handler("gemmd.v1.GemmService", {
        "Sgemm": handler(sgemm, "SgemmRequest", "SgemmResponse"),
        "GetServerInfo": handler(info, "GetServerInfoRequest",
                                 "GetServerInfoResponse"),
    })


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--descriptors", required=True, metavar="FILE")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--library", choices=MULTIPLIERS, default="torch")
    options = parser.parse_args()

    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(options.threads),
        options=[("grpc.max_receive_message_length", -1),
                 ("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((service(
        load_messages(options.descriptors), MULTIPLIERS[options.library]()),))
    port = server.add_insecure_port(options.listen)
    server.start()
    print(f"grpc listening on {options.listen.rpartition(':')[0]}:{port}",
          flush=True)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
