"""What a broker is asked, as plain values: one file for each family of requests.

Whoever speaks a protocol with clients (rpc/ speaks gRPC) translates it into these values and back. Nothing in this
package knows protobuf, frames or streams; `tests/test_architecture.py` holds that.
"""
