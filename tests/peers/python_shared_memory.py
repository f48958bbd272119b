"""Shared memory as a client of another language uses it: a sealed memfd handed
over the side socket (proto/shared_memory.h), operands and product as slices.

  python_shared_memory.py --protos proto --protoc protoc
"""

import argparse
import fcntl
import mmap
import os
import socket
import struct
import tempfile

import grpc
import numpy as np

import gemmd_process
from python_client import GemmService, generate

F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


def share(side_socket, size):
    """A connection, the shared floats, and the region's id."""
    memfd = os.memfd_create("matrices", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, size)
    fcntl.fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(side_socket)
    socket.send_fds(connection, [struct.pack("=IIQ", 1, 0, size)], [memfd])
    reply = connection.recv(128, socket.MSG_WAITALL)
    version, code, region_id, message = struct.unpack("=II16s104s", reply)
    assert (version, code) == (1, 0), message
    floats = np.frombuffer(mmap.mmap(memfd, size), np.float32)
    os.close(memfd)
    return connection, floats, region_id


def check(service, side_socket):
    from gemmd.v1 import sgemm_pb2
    connection, floats, region_id = share(side_socket, 1 << 22)
    rng = np.random.default_rng()
    a = rng.uniform(-1, 1, (300, 200)).astype(np.float32)
    b = rng.uniform(-1, 1, (200, 400)).astype(np.float32)
    floats[:a.size] = a.ravel()
    floats[a.size:a.size + b.size] = b.ravel()
    begin = a.size + b.size

    def slice_at(element):
        return sgemm_pb2.SharedMemorySlice(region_id=region_id,
                                           offset=4 * element)

    request = sgemm_pb2.SgemmRequest(
        a=sgemm_pb2.Operand(rows=300, cols=200, shared_memory=slice_at(0)),
        b=sgemm_pb2.Operand(rows=200, cols=400,
                            shared_memory=slice_at(a.size)),
        output=sgemm_pb2.Output(shared_memory=sgemm_pb2.SharedMemoryOutput(
            slice=slice_at(begin))))
    response = service.sgemm(request, timeout=60)
    assert not response.c
    product = floats[begin:begin + 300 * 400].reshape(300, 400)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(product - wanted).max() / np.abs(wanted).max()
    assert error <= 1e-5, error
    print(f"shared memory: 300 x 400 in place, error {error:.1e}")
    connection.close()
    while True:  # the region goes with its connection, a moment later
        try:
            service.sgemm(request, timeout=60)
        except grpc.RpcError as gone:
            assert gone.code() == grpc.StatusCode.NOT_FOUND, gone
            print("closed:", gone.details())
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--protos", "--protoc"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        generate(options.protoc, options.protos, folder)
        path = os.path.join(folder, "gemmd.sock")
        with gemmd_process.server("--unix-socket", path, "--shared-memory"):
            with grpc.insecure_channel(f"unix:{path}") as channel:
                check(GemmService(channel), path + ".shm")


if __name__ == "__main__":
    main()
