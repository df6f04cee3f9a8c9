/* calls_opener NAME: is linked with a library that opens NAME. */
extern int open_by_name(const char *name);

int main(int argc, char **argv)
{
    return argc == 2 && open_by_name(argv[1]) ? 0 : 1;
}
