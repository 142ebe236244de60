# docker build -t isentrope .
# docker run --rm -it -v "$PWD:/work" isentrope train demo --out runs/first
#
# With a GPU: docker build --build-arg TORCH="torch==2.13.0" -t isentrope . ; docker run --gpus all …
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.11-slim-bookworm
ARG TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
RUN pip install --no-cache-dir ${TORCH}
COPY --from=build /dist /dist
RUN pip install --no-cache-dir "$(ls /dist/*.whl)[hf]" && rm -r /dist \
    && useradd --create-home somebody
USER somebody
WORKDIR /work
ENTRYPOINT ["isentrope"]
CMD ["--help"]
