// Writes a model with random weights, and measures what it generates.
//
// usage: measure write MODEL | measure run MODEL
//
// Tokens and a sum over the logits' bits are on stdout, figures on stderr.
#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"
#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static const int VOCABULARY = 8192, WIDTH = 1024, INNER = 2816, LAYERS = 8, HEADS = 16, KEY_HEADS = 4;
static const int PROMPT = 512, TOKENS = 256, CONTEXT = 1024;

static uint64_t state = 1;

static float uniform() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / 2147483648.0f;
}

static void add(gguf_context * file, ggml_context * tensors, ggml_type type, const std::string & name, int64_t columns, int64_t rows) {
    ggml_tensor * tensor = rows == 1 ? ggml_new_tensor_1d(tensors, type, columns) : ggml_new_tensor_2d(tensors, type, columns, rows);
    ggml_set_name(tensor, name.c_str());
    if (rows == 1) {
        std::fill_n((float *)tensor->data, columns, 1.0f);
    } else {
        const float scale = 1.7f / std::sqrt((float)columns);
        std::vector<float> weights(columns * rows);
        for (float & weight : weights) weight = scale * uniform();
        ggml_quantize_chunk(type, weights.data(), tensor->data, 0, rows, columns, nullptr);
    }
    gguf_add_tensor(file, tensor);
}

static void write(const char * path) {
    gguf_context * file = gguf_init_empty();
    gguf_set_val_str(file, "general.architecture", "llama");
    gguf_set_val_str(file, "tokenizer.ggml.model", "no_vocab");
    gguf_set_val_u32(file, "llama.vocab_size", VOCABULARY);
    gguf_set_val_u32(file, "llama.context_length", CONTEXT);
    gguf_set_val_u32(file, "llama.embedding_length", WIDTH);
    gguf_set_val_u32(file, "llama.block_count", LAYERS);
    gguf_set_val_u32(file, "llama.feed_forward_length", INNER);
    gguf_set_val_u32(file, "llama.attention.head_count", HEADS);
    gguf_set_val_u32(file, "llama.attention.head_count_kv", KEY_HEADS);
    gguf_set_val_u32(file, "llama.rope.dimension_count", WIDTH / HEADS);
    gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    ggml_context * tensors = ggml_init({ (size_t)1 << 30, nullptr, false });
    const int keys = WIDTH / HEADS * KEY_HEADS;
    add(file, tensors, GGML_TYPE_F16, "token_embd.weight", WIDTH, VOCABULARY);
    add(file, tensors, GGML_TYPE_F32, "output_norm.weight", WIDTH, 1);
    add(file, tensors, GGML_TYPE_F16, "output.weight", WIDTH, VOCABULARY);
    for (int layer = 0; layer < LAYERS; ++layer) {
        const std::string block = "blk." + std::to_string(layer) + ".";
        add(file, tensors, GGML_TYPE_F32, block + "attn_norm.weight", WIDTH, 1);
        add(file, tensors, GGML_TYPE_F16, block + "attn_q.weight", WIDTH, WIDTH);
        add(file, tensors, GGML_TYPE_F16, block + "attn_k.weight", WIDTH, keys);
        add(file, tensors, GGML_TYPE_F16, block + "attn_v.weight", WIDTH, keys);
        add(file, tensors, GGML_TYPE_F16, block + "attn_output.weight", WIDTH, WIDTH);
        add(file, tensors, GGML_TYPE_F32, block + "ffn_norm.weight", WIDTH, 1);
        add(file, tensors, GGML_TYPE_Q8_0, block + "ffn_gate.weight", WIDTH, INNER);
        add(file, tensors, GGML_TYPE_Q8_0, block + "ffn_up.weight", WIDTH, INNER);
        add(file, tensors, GGML_TYPE_Q4_0, block + "ffn_down.weight", INNER, WIDTH);
    }
    if (!gguf_write_to_file(file, path, false)) exit(1);
}

static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double used_mib(ggml_backend_dev_t device) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    return (double)(total - free) / (1 << 20);
}

// Reads the logits of the last token: their greatest, and the bits of all.
static llama_token greatest(llama_context * context, uint64_t & bits) {
    const float * logits = llama_get_logits_ith(context, -1);
    for (int i = 0; i < VOCABULARY; ++i) {
        uint32_t word;
        memcpy(&word, logits + i, 4);
        bits = bits * 31 + word;
    }
    return (llama_token)(std::max_element(logits, logits + VOCABULARY) - logits);
}

static llama_context * open_context(llama_model * model) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = CONTEXT;
    params.n_batch = params.n_ubatch = PROMPT;
    llama_context * context = llama_init_from_model(model, params);
    if (context == nullptr) exit(1);
    return context;
}

static void decode(llama_context * context, llama_token * tokens, int count) {
    if (llama_decode(context, llama_batch_get_one(tokens, count)) != 0) exit(1);
}

static int run(const char * path) {
    ggml_backend_load_all();
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (device == nullptr) {
        fprintf(stderr, "ggml has no GPU\n");
        return 1;
    }
    const double before = used_mib(device);
    double begun = seconds();
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 99;
    llama_model * model = llama_model_load_from_file(path, params);
    if (model == nullptr) return 1;
    fprintf(stderr, "load_ms %.1f\n", 1e3 * (seconds() - begun));
    llama_context * context = open_context(model);

    std::vector<llama_token> prompt(PROMPT);
    for (int i = 0; i < PROMPT; ++i) prompt[i] = (i * 7919) % VOCABULARY;
    uint64_t bits = 0;
    double fastest = 1e9;
    for (int round = 0; round < 5; ++round) {
        llama_memory_clear(llama_get_memory(context), true);
        begun = seconds();
        decode(context, prompt.data(), PROMPT);
        llama_synchronize(context);
        fastest = std::min(fastest, seconds() - begun);
    }
    fprintf(stderr, "prompt_tokens_per_s %.0f\n", PROMPT / fastest);
    llama_token next = greatest(context, bits);
    begun = seconds();
    for (int i = 0; i < TOKENS; ++i) {
        printf("%d ", next);
        decode(context, &next, 1);
        next = greatest(context, bits);
    }
    printf("\nlogits %016llx\n", (unsigned long long)bits);
    fprintf(stderr, "tokens_per_s %.0f\n", TOKENS / (seconds() - begun));
    fprintf(stderr, "memory_mib %.0f\n", used_mib(device) - before);

    // A server that opens a context for each user: mostly allocation of its buffers.
    begun = seconds();
    for (int i = 0; i < 20; ++i) {
        llama_context * other = open_context(model);
        decode(other, prompt.data(), 64);
        llama_synchronize(other);
        llama_free(other);
    }
    fprintf(stderr, "context_ms %.2f\n", 1e3 * (seconds() - begun) / 20);
    llama_free(context);
    llama_model_free(model);
    fprintf(stderr, "after_mib %.0f\n", used_mib(device) - before);
    return 0;
}

int main(int count, char ** words) {
    if (count == 3 && strcmp(words[1], "write") == 0) {
        write(words[2]);
        return 0;
    }
    return count == 3 && strcmp(words[1], "run") == 0 ? run(words[2]) : 1;
}
