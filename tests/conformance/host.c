/* host.c - host [deep] COUNT PLUGIN… [shared]: opens and closes each plugin COUNT times. Threads
 * call the plugin. Some of them end while the plugin is open, others after the program has closed
 * it. With "shared", plugin and program have the same malloc, and each frees blocks of the other.
 * With "deep" the program opens the plugins with RTLD_DEEPBIND. */
#include "conformance.h"

#include <pthread.h>
#include <sys/wait.h>

struct plugin {
    void *handle;
    void *(*allocate)(size_t);
    void (*free)(void *);
    void (*leave)(void);
};

static bool shared;
static pthread_barrier_t called;
static pthread_barrier_t closed;

static bool open_it(struct plugin *plugin, const char *path, int flags)
{
    plugin->handle = dlopen(path, RTLD_NOW | flags);
    if (plugin->handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    plugin->allocate = (void *(*)(size_t))dlsym(plugin->handle, "plugin_allocate");
    plugin->free = (void (*)(void *))dlsym(plugin->handle, "plugin_free");
    plugin->leave = (void (*)(void))dlsym(plugin->handle, "plugin_leave");
    return plugin->allocate != NULL && plugin->free != NULL && plugin->leave != NULL;
}

static void call_it(const struct plugin *plugin)
{
    for (size_t size = 1; size < 100000; size = size * 2 + 3) {
        void *theirs = plugin->allocate(size);
        void *ours = malloc(size);
        if (theirs == NULL || ours == NULL)
            abort();
        (shared ? plugin->free : free)(ours);
        (shared ? free : plugin->free)(theirs);
    }
    plugin->leave();
}

static void *call_and_end(void *plugin)
{
    call_it(plugin);
    return NULL;
}

static void *call_and_outlive(void *plugin)
{
    call_it(plugin);
    pthread_barrier_wait(&called);
    pthread_barrier_wait(&closed);
    return NULL;
}

int main(int argc, char **argv)
{
    bool deep = argc > 1 && strcmp(argv[1], "deep") == 0;
    char **word = argv + 1 + deep;
    char **end = argv + argc;
    shared = strcmp(end[-1], "shared") == 0;
    end -= shared;
    int count = atoi(*word++);
    size_t plugins = (size_t)(end - word);
    struct plugin opened[8];
    for (int i = 0; i < count; i++) {
        pthread_t first;
        pthread_t second[8];
        pthread_barrier_init(&called, NULL, (unsigned)plugins + 1);
        pthread_barrier_init(&closed, NULL, (unsigned)plugins + 1);
        for (size_t k = 0; k < plugins; k++) {
            if (!open_it(&opened[k], word[k], deep ? RTLD_DEEPBIND : 0))
                return 1;
            call_it(&opened[k]);
            if (pthread_create(&first, NULL, call_and_end, &opened[k]) != 0 ||
                pthread_join(first, NULL) != 0 ||
                pthread_create(&second[k], NULL, call_and_outlive, &opened[k]) != 0)
                return 1;
        }
        pthread_barrier_wait(&called);
        for (size_t k = 0; k < plugins; k++)
            dlclose(opened[k].handle);
        pthread_barrier_wait(&closed);
        for (size_t k = 0; k < plugins; k++)
            pthread_join(second[k], NULL);
        pid_t pid = fork(); /* a closed plugin must have left no fork handler */
        int status = 1;
        if (pid == 0)
            _exit(0);
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
    }
    puts("closed");
    return 0;
}
